"""MIMIC-IV v2.2 and MIMIC-IV-Note v2.2 (Johnson et al. 2023): discharge summaries with ICD-9 or ICD-10 codes.

Files, from PhysioNet for credentialed users, each as `.csv.gz` or `.csv`: hosp/diagnoses_icd and
hosp/procedures_icd of MIMIC-IV, note/discharge of MIMIC-IV-Note; also without these folders. MIMIC-IV-Note is
a distribution of its own: `notes` is its folder where it is not in that of MIMIC-IV.

An admission is coded in ICD-9 (until 2015) or ICD-10. ICD-9 codes get their dot back; ICD-10 codes stay as
the tables write them, as in the published sets.

The splits are the lists of admission ids of Nguyen et al. (2023), which their project MIMIC-IV-ICD publishes
with the fifty codes of `codes: 50`. They are not part of this package. Counts are those of Table 3 of the
Similarity-Dissimilarity paper; its numbers of codes are, by our reading, those with a training row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.clinical import (
    LICENCE,
    ClinicalOptions,
    Lists,
    NoteStore,
    notes_dataset,
    records,
)
from mlcl.data.sources.common.distribution import Release
from mlcl.data.sources.common.icd_codes import (
    Codes,
    CodeTable,
    icd9_diagnosis,
    icd9_diagnosis_chapter,
    icd9_procedure,
    icd9_procedure_chapter,
    icd10_diagnosis_chapter,
    icd10_procedure_section,
)

TITLE = "MIMIC-IV v2.2 (PhysioNet)"
NOTE_TITLE = "MIMIC-IV-Note v2.2 (PhysioNet)"
NOTES = tuple(f"{folder}discharge.csv{end}" for folder in ("note/", "") for end in (".gz", ""))
DIAGNOSES = tuple(f"{folder}diagnoses_icd.csv{end}" for folder in ("hosp/", "") for end in (".gz", ""))
PROCEDURES = tuple(f"{folder}procedures_icd.csv{end}" for folder in ("hosp/", "") for end in (".gz", ""))
RELEASE = Release(TITLE, [DIAGNOSES, PROCEDURES])
NOTE_RELEASE = Release(NOTE_TITLE, [NOTES])
TABLES = {
    9: (
        CodeTable(DIAGNOSES, icd9_diagnosis, icd9_diagnosis_chapter),
        CodeTable(PROCEDURES, icd9_procedure, icd9_procedure_chapter),
    ),
    10: (
        CodeTable(DIAGNOSES, str, icd10_diagnosis_chapter),
        CodeTable(PROCEDURES, str, icd10_procedure_section),
    ),
}
PUBLISHED: dict[tuple[int, str], dict[str, float]] = {
    (9, "full"): {
        "train": 188_533,
        "validation": 7_110,
        "test": 13_709,
        "codes": 11_145,
        "codes a row": 13.4,
    },
    (9, "50"): {"train": 170_664, "validation": 6_406, "test": 12_405, "codes": 50, "codes a row": 4.7},
    (10, "full"): {
        "train": 110_442,
        "validation": 4_017,
        "test": 7_851,
        "codes": 25_230,
        "codes a row": 16.1,
    },
    (10, "50"): {"train": 104_077, "validation": 3_805, "test": 7_368, "codes": 50, "codes a row": 5.4},
}


class Options(ClinicalOptions):
    """Options of the tables, and of the codes and the split."""

    version: Literal[9, 10] = Field(10, description="of the codes")
    notes: UserPath | None = Field(None, description="folder of MIMIC-IV-Note; default: path")


def state(options: Options) -> list[Any]:
    """Plain data that changes when one of the files does."""
    with RELEASE.open(options.path) as tables, NOTE_RELEASE.open(options.notes or options.path) as notes:
        return [tables.state(), notes.state(), *_lists(options).state()]


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """The data set. Raises UserError with file and line, and for counts that are not the published."""
    tables = work.enter_context(RELEASE.open(options.path))
    files = work.enter_context(NOTE_RELEASE.open(options.notes or options.path))
    notes, codes = NoteStore(work), Codes()
    for table in TABLES[options.version]:
        rows = records(tables, table.names, ("subject_id", "hadm_id", "icd_code", "icd_version"))
        codes.add(table, (row[:3] for row in rows if row[3] == str(options.version)))
    splits, top = _lists(options).read(codes, split_seed)
    # The lists of the other version name other admissions.
    splits = {row: split for row, split in splits.items() if row in codes.of}
    for admission, kind, time, text in records(files, NOTES, ("hadm_id", "note_type", "charttime", "text")):
        if admission in splits:
            notes.add(admission, (time, kind != "DS"), text)
    name = f"mimic4-icd{options.version}-{options.codes}"
    return notes_dataset(options, splits, codes, top, notes, name, PUBLISHED[options.version, options.codes])


def _lists(options: Options) -> Lists:
    title = "MIMIC-IV-ICD by Nguyen et al. (2023), in its folders mimicdata/mimic4_icd9 and mimic4_icd10"
    return Lists(options, title, f"mimic4_icd{options.version}", top=True)


SOURCE = Source(
    name="mimic4",
    title="MIMIC-IV v2.2: discharge summaries with ICD-9 or ICD-10 codes",
    origin=f"{TITLE}, {NOTE_TITLE}",
    licence=LICENCE,
    version="2",
    options=Options,
    read=read,
    state=state,
)
