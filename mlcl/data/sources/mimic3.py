"""MIMIC-III v1.4 (Johnson et al. 2016): discharge summaries with ICD-9-CM codes, split as by CAML.

Files, from PhysioNet for credentialed users, each as `.csv.gz` or `.csv`: NOTEEVENTS, DIAGNOSES_ICD,
PROCEDURES_ICD. The summaries of an admission and their addenda become one text, by date.

The splits are the lists of admission ids of Mullenbach et al. (2018), which their project CAML publishes:
`{train,dev,test}_{full,50}_hadm_ids.csv`, one id a line. They are not part of this package.

Counts are those of Table 3 of the Similarity-Dissimilarity paper. CAML itself counts 8,922 codes: over all
three splits, and with procedure codes read as numbers, which loses their leading zeros and merges some. Read
that way, 8,686 of them have a training row; read as text, as here, a few more differ. So the paper's
8,692 are, by our reading, the codes with a training row. Of CAML's cleaning of the text see `clean_text`.
A listed admission without a code stays, with no label, as in CAML's own files.
"""

from __future__ import annotations

from typing import Any

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
)

TITLE = "MIMIC-III v1.4 (PhysioNet)"
NOTES = ("NOTEEVENTS.csv.gz", "NOTEEVENTS.csv")
TABLES = (
    CodeTable(("DIAGNOSES_ICD.csv.gz", "DIAGNOSES_ICD.csv"), icd9_diagnosis, icd9_diagnosis_chapter),
    CodeTable(("PROCEDURES_ICD.csv.gz", "PROCEDURES_ICD.csv"), icd9_procedure, icd9_procedure_chapter),
)
RELEASE = Release(TITLE, [NOTES, *(table.names for table in TABLES)])
PUBLISHED: dict[str, dict[str, float]] = {
    "full": {"train": 47_723, "validation": 1_631, "test": 3_372, "codes": 8_692, "codes a row": 15.7},
    "50": {"train": 8_066, "validation": 1_573, "test": 1_729, "codes": 50, "codes a row": 5.7},
}
TOP_50 = """
401.9 38.93 428.0 427.31 414.01 96.04 96.6 584.9 250.00 96.71 272.4 518.81 99.04 39.61 599.0 530.81
96.72 272.0 285.9 88.56 244.9 486 38.91 285.1 36.15 276.2 496 99.15 995.92 V58.61 507.0 038.9 88.72
585.9 403.90 311 305.1 37.22 412 33.24 39.95 287.5 410.71 276.1 V45.81 424.0 45.13 V15.82 511.9 37.23
"""
"""The labels of MIMIC-III-50 as CAML prints them; counted anew they differ (Edin et al. 2023)."""


def state(options: ClinicalOptions) -> list[Any]:
    """Plain data that changes when one of the files does."""
    return [RELEASE.state(options), *_lists(options).state()]


def read(options: ClinicalOptions, split_seed: int, work: Workspace) -> NewDataset:
    """The data set. Raises UserError with file and line, and for counts that are not the published."""
    files, notes = work.enter_context(RELEASE.open(options.path)), NoteStore(work)
    codes = Codes()
    for table in TABLES:
        codes.add(table, records(files, table.names, ("SUBJECT_ID", "HADM_ID", "ICD9_CODE")))
    splits, _ = _lists(options).read(codes, split_seed)
    columns = ("HADM_ID", "CHARTDATE", "CATEGORY", "DESCRIPTION", "TEXT")
    for admission, date, category, description, text in records(files, NOTES, columns):
        if category.strip() == "Discharge summary" and admission in splits:
            # A summary goes before an addendum of its day.
            notes.add(admission, (date, description.strip() != "Report"), text)
    name, published = f"mimic3-{options.codes}", PUBLISHED[options.codes]
    return notes_dataset(options, splits, codes, frozenset(TOP_50.split()), notes, name, published)


def _lists(options: ClinicalOptions) -> Lists:
    return Lists(options, "CAML by Mullenbach et al. (2018), in its folder mimicdata/mimic3", "mimic3")


SOURCE = Source(
    name="mimic3",
    title="MIMIC-III v1.4: discharge summaries with ICD-9 codes",
    origin=TITLE,
    licence=LICENCE,
    version="2",
    options=ClinicalOptions,
    read=read,
    state=state,
)
