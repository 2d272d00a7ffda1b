"""MIMIC-III v1.4 (Johnson et al. 2016) and MIMIC-IV v2.2 with MIMIC-IV-Note v2.2 (Johnson et al. 2023).

Discharge summaries with ICD codes, from PhysioNet for credentialed users. Each file may be `.csv.gz` or
`.csv`. The summaries of an admission and their addenda become one text, by date. Counts are those of Table 3
of the Similarity-Dissimilarity paper. The lists of admission ids of the splits are not part of this package.

`mimic3` reads NOTEEVENTS, DIAGNOSES_ICD and PROCEDURES_ICD. Its splits are the lists of Mullenbach et al.
(2018), which their project CAML publishes: `{train,dev,test}_{full,50}_hadm_ids.csv`, one id per line. CAML
counts 8,922 codes in all three splits together. It reads procedure codes as numbers, which loses leading
zeros and makes some codes equal; 8,686 of its codes have a training row. Read as text, as here, a few more
codes are distinct. By our reading the paper's 8,692 are therefore the codes with a training row. For CAML's
cleaning of the text see `clean_text`. Listed admissions without a code are kept without labels, as in CAML's
files.

`mimic4` reads hosp/diagnoses_icd and hosp/procedures_icd of MIMIC-IV and note/discharge of MIMIC-IV-Note; the
files need not be in the folders hosp and note. MIMIC-IV-Note is distributed separately: the option `notes` is
its folder if that differs from MIMIC-IV's. An admission is coded in ICD-9 (until 2015) or ICD-10. ICD-9 codes
are written with their dot, ICD-10 codes without it, as in the published sets. The splits are the lists of
Nguyen et al. (2023), which their project MIMIC-IV-ICD publishes with the fifty codes of `codes: 50`; for its
cleaning of the text see `clean_tokens`. The paper's numbers of codes are, by our reading, those with a
training row.

The tables have codes without their dot, so that diagnosis 011.7 and procedure 01.17 of ICD-9-CM are both
written 0117.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common import clinical
from mlcl.data.sources.common.distribution import Release

ICD9_DIAGNOSIS_CHAPTERS = (
    "001-139 140-239 240-279 280-289 290-319 320-389 390-459 460-519 520-579 "
    "580-629 630-679 680-709 710-739 740-759 760-779 780-799 800-999 V01-V91 E000-E999"
)
"""The chapters of ICD-9-CM, volume 1 (diagnoses), and its two supplementary classifications."""
ICD9_PROCEDURE_CHAPTERS = (
    "00 01-05 06-07 08-16 17 18-20 21-29 30-34 35-39 40-41 42-54 55-59 60-64 65-71 72-75 76-84 85-86 87-99"
)
"""The chapters of ICD-9-CM, volume 3 (procedures)."""
ICD10_DIAGNOSIS_CHAPTERS = (
    "A00-B99 C00-D49 D50-D89 E00-E89 F01-F99 G00-G99 H00-H59 H60-H95 I00-I99 J00-J99 K00-K95 L00-L99 "
    "M00-M99 N00-N99 O00-O9A P00-P96 Q00-Q99 R00-R99 S00-T88 U00-U85 V00-Y99 Z00-Z99"
)
"""The chapters of ICD-10-CM. Letters sort after digits, so that M1A, C7A and Z3A lie in their chapters."""


def icd9_diagnosis(code: str) -> str:
    """Writes a diagnosis code with its dot: after three characters, or after four of an E code."""
    return _insert_dot(code, 4 if code.startswith("E") else 3)


def icd9_procedure(code: str) -> str:
    """Writes a procedure code with its dot, after two digits."""
    return _insert_dot(code, 2)


def icd9_diagnosis_chapter(code: str) -> str:
    """Returns the chapter of a diagnosis code such as 428.0, by its range ("390-459")."""
    return _find_chapter(code.partition(".")[0], ICD9_DIAGNOSIS_CHAPTERS)


def icd9_procedure_chapter(code: str) -> str:
    """Returns the chapter of a procedure code such as 38.93 ("procedures 35-39")."""
    return f"procedures {_find_chapter(code.partition('.')[0], ICD9_PROCEDURE_CHAPTERS)}"


def icd10_diagnosis_chapter(code: str) -> str:
    """Returns the chapter of a diagnosis code such as I2510, by its range ("I00-I99")."""
    return _find_chapter(code[:3], ICD10_DIAGNOSIS_CHAPTERS)


def icd10_procedure_section(code: str) -> str:
    """Returns the section of an ICD-10-PCS code, which is its first character ("procedures 0" is surgery)."""
    return f"procedures {code[0]}"


def _find_chapter(category: str, chapters: str) -> str:
    """Returns the range of `chapters` ("first-last" or one category) that has `category`, else "other"."""
    for chapter in chapters.split():
        first, _, last = chapter.partition("-")
        if len(category) == len(first) and first <= category <= (last or first):
            return chapter
    return "other"


def _insert_dot(code: str, digits: int) -> str:
    bare_code = code.replace(".", "")
    return f"{bare_code[:digits]}.{bare_code[digits:]}" if len(bare_code) > digits else bare_code


COUNTED = ("train", "validation", "test", "codes", "codes a row")
"""The names of the published counts, in the order of the arguments of `_published_counts`."""


def _file_names(*names: str) -> tuple[str, ...]:
    """Returns the names that a file may have, with or without `.gz`."""
    return tuple(f"{name}.csv{end}" for name in names for end in (".gz", ""))


def _published_counts(*counts: float) -> dict[str, float]:
    return dict(zip(COUNTED, counts, strict=True))


TITLE_3 = "MIMIC-III v1.4 (PhysioNet)"
NOTES_3 = _file_names("NOTEEVENTS")
TABLES_3 = (
    clinical.CodeTable(_file_names("DIAGNOSES_ICD"), icd9_diagnosis, icd9_diagnosis_chapter),
    clinical.CodeTable(_file_names("PROCEDURES_ICD"), icd9_procedure, icd9_procedure_chapter),
)
RELEASE_3 = Release(TITLE_3, [NOTES_3, *(table.names for table in TABLES_3)])
PUBLISHED_3 = {
    "full": _published_counts(47_723, 1_631, 3_372, 8_692, 15.7),
    "50": _published_counts(8_066, 1_573, 1_729, 50, 5.7),
}
TOP_50 = """
401.9 38.93 428.0 427.31 414.01 96.04 96.6 584.9 250.00 96.71 272.4 518.81 99.04 39.61 599.0 530.81
96.72 272.0 285.9 88.56 244.9 486 38.91 285.1 36.15 276.2 496 99.15 995.92 V58.61 507.0 038.9 88.72
585.9 403.90 311 305.1 37.22 412 33.24 39.95 287.5 410.71 276.1 V45.81 424.0 45.13 V15.82 511.9 37.23
"""
"""The labels of MIMIC-III-50 as CAML prints them; a recount gives others (Edin et al. 2023)."""


def state_3(options: clinical.ClinicalOptions) -> list[Any]:
    """Returns plain data that changes when one of the files of MIMIC-III does."""
    return [RELEASE_3.state(options), *_lists_3(options).state()]


def read_3(options: clinical.ClinicalOptions, split_seed: int, work: Workspace) -> NewDataset:
    """Reads MIMIC-III. Raises UserError for bad files, and for counts that are not the published ones."""
    files, notes = work.enter_context(RELEASE_3.open(options.path)), clinical.NoteStore(work)
    codes = clinical.Codes()
    for table in TABLES_3:
        codes.add(table, clinical.records(files, table.names, ("SUBJECT_ID", "HADM_ID", "ICD9_CODE")))
    splits, _ = _lists_3(options).read(codes, split_seed)
    columns = ("HADM_ID", "CHARTDATE", "CATEGORY", "DESCRIPTION", "TEXT")
    for admission, date, category, description, text in clinical.records(files, NOTES_3, columns):
        if category.strip() == "Discharge summary" and admission in splits:
            # On one day, a summary ("Report") precedes its addenda.
            notes.add(admission, (date, description.strip() != "Report"), text)
    name, published = f"mimic3-{options.codes}", PUBLISHED_3[options.codes]
    return clinical.notes_dataset(options, splits, codes, frozenset(TOP_50.split()), notes, name, published)


def _lists_3(options: clinical.ClinicalOptions) -> clinical.Lists:
    return clinical.Lists(
        options, "CAML by Mullenbach et al. (2018), in its folder mimicdata/mimic3", "mimic3"
    )


MIMIC3 = Source(
    name="mimic3",
    title="MIMIC-III v1.4: discharge summaries with ICD-9 codes",
    origin=TITLE_3,
    licence=clinical.LICENCE,
    version="2",
    options=clinical.ClinicalOptions,
    read=read_3,
    state=state_3,
)

TITLE_4, NOTE_TITLE_4 = "MIMIC-IV v2.2 (PhysioNet)", "MIMIC-IV-Note v2.2 (PhysioNet)"
NOTES_4 = _file_names("note/discharge", "discharge")
DIAGNOSES_4 = _file_names("hosp/diagnoses_icd", "diagnoses_icd")
PROCEDURES_4 = _file_names("hosp/procedures_icd", "procedures_icd")
RELEASE_4, NOTE_RELEASE_4 = Release(TITLE_4, [DIAGNOSES_4, PROCEDURES_4]), Release(NOTE_TITLE_4, [NOTES_4])
TABLES_4 = {
    9: (
        clinical.CodeTable(DIAGNOSES_4, icd9_diagnosis, icd9_diagnosis_chapter),
        clinical.CodeTable(PROCEDURES_4, icd9_procedure, icd9_procedure_chapter),
    ),
    10: (
        clinical.CodeTable(DIAGNOSES_4, str, icd10_diagnosis_chapter),
        clinical.CodeTable(PROCEDURES_4, str, icd10_procedure_section),
    ),
}
PUBLISHED_4 = {
    (9, "full"): _published_counts(188_533, 7_110, 13_709, 11_145, 13.4),
    (9, "50"): _published_counts(170_664, 6_406, 12_405, 50, 4.7),
    (10, "full"): _published_counts(110_442, 4_017, 7_851, 25_230, 16.1),
    (10, "50"): _published_counts(104_077, 3_805, 7_368, 50, 5.4),
}


class Mimic4Options(clinical.ClinicalOptions):
    """The options of the source `mimic4`: those of `mimic3`, the version of its codes, and the notes."""

    version: Literal[9, 10] = Field(10, description="of the codes")
    notes: UserPath | None = Field(None, description="folder of MIMIC-IV-Note; default: path")

    def clean_row(self, text: str) -> str:
        """Returns a row's text, after `clean_tokens` if the option `clean` is set."""
        return clinical.clean_tokens(text) if self.clean else text


def state_4(options: Mimic4Options) -> list[Any]:
    """Returns plain data that changes when one of the files of MIMIC-IV does."""
    note_folder = options.notes or options.path
    with RELEASE_4.open(options.path) as tables, NOTE_RELEASE_4.open(note_folder) as notes:
        return [tables.state(), notes.state(), *_lists_4(options).state()]


def read_4(options: Mimic4Options, split_seed: int, work: Workspace) -> NewDataset:
    """Reads MIMIC-IV. Raises UserError for bad files, and for counts that are not the published ones."""
    tables = work.enter_context(RELEASE_4.open(options.path))
    files = work.enter_context(NOTE_RELEASE_4.open(options.notes or options.path))
    notes, codes = clinical.NoteStore(work), clinical.Codes()
    for table in TABLES_4[options.version]:
        rows = clinical.records(tables, table.names, ("subject_id", "hadm_id", "icd_code", "icd_version"))
        codes.add(table, (row[:3] for row in rows if row[3] == str(options.version)))
    splits, top = _lists_4(options).read(codes, split_seed)
    # Admissions that are coded in the other version are left out.
    splits = {row: split for row, split in splits.items() if row in codes.of}
    columns = ("hadm_id", "note_type", "charttime", "text")
    for admission, kind, time, text in clinical.records(files, NOTES_4, columns):
        if admission in splits:
            notes.add(admission, (time, kind != "DS"), text)
    name = f"mimic4-icd{options.version}-{options.codes}"
    published = PUBLISHED_4[options.version, options.codes]
    return clinical.notes_dataset(options, splits, codes, top, notes, name, published)


def _lists_4(options: Mimic4Options) -> clinical.Lists:
    title = "MIMIC-IV-ICD by Nguyen et al. (2023), in its folders mimicdata/mimic4_icd9 and mimic4_icd10"
    return clinical.Lists(options, title, f"mimic4_icd{options.version}", top=True)


MIMIC4 = Source(
    name="mimic4",
    title="MIMIC-IV v2.2: discharge summaries with ICD-9 or ICD-10 codes",
    origin=f"{TITLE_4}, {NOTE_TITLE_4}",
    licence=clinical.LICENCE,
    version="3",
    options=Mimic4Options,
    read=read_4,
    state=state_4,
)
