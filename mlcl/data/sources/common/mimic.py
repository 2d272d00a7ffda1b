"""What the MIMIC tables need: where the dot of an ICD code goes, its chapter, and the splits of admissions.

The tables leave the dot out. Without it diagnosis 0117 (011.7) and procedure 0117 (01.17) of ICD-9-CM look
alike. A procedure code that was once read as a number has lost its leading zeros, and nothing brings them
back: 117 may be 01.17 or 11.7. Codes are text from the first byte on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.data.format import SPLITS
from mlcl.data.sources.common.clinical import ClinicalOptions, Codes
from mlcl.data.sources.common.distribution import Distribution
from mlcl.data.split_assignment import assign
from mlcl.errors import UserError

ICD9_DIAGNOSIS_CHAPTERS = (
    "001-139 140-239 240-279 280-289 290-319 320-389 390-459 460-519 520-579 "
    "580-629 630-679 680-709 710-739 740-759 760-779 780-799 800-999 V01-V91 E000-E999"
)
"""The chapters of volume 1, and its two supplementary classifications."""
ICD9_PROCEDURE_CHAPTERS = (
    "00 01-05 06-07 08-16 17 18-20 21-29 30-34 35-39 40-41 42-54 55-59 60-64 65-71 72-75 76-84 85-86 87-99"
)
"""The chapters of volume 3."""
ICD10_DIAGNOSIS_CHAPTERS = (
    "A00-B99 C00-D49 D50-D89 E00-E89 F01-F99 G00-G99 H00-H59 H60-H95 I00-I99 J00-J99 K00-K95 L00-L99 "
    "M00-M99 N00-N99 O00-O9A P00-P96 Q00-Q99 R00-R99 S00-T88 U00-U85 V00-Y99 Z00-Z99"
)
"""The chapters of ICD-10-CM. Letters follow digits, so M1A, C7A and Z3A lie where they belong."""
FRACTIONS = (0.9, 1 / 30, 1 / 15)
"""Shares of the patients in the splits of MIMIC-IV-ICD, which `splits: seeded` takes over."""


def icd9_diagnosis(code: str) -> str:
    """A diagnosis code with its dot: after three characters, after four of an E code."""
    return _dotted(code, 4 if code.startswith("E") else 3)


def icd9_procedure(code: str) -> str:
    """A procedure code with its dot, after two digits."""
    return _dotted(code, 2)


def icd9_diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as 428.0, by its range ("390-459")."""
    return chapter_of(code.partition(".")[0], ICD9_DIAGNOSIS_CHAPTERS)


def icd9_procedure_chapter(code: str) -> str:
    """The chapter of a procedure code such as 38.93 ("procedures 35-39")."""
    return f"procedures {chapter_of(code.partition('.')[0], ICD9_PROCEDURE_CHAPTERS)}"


def icd10_diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as I2510, by its range ("I00-I99")."""
    return chapter_of(code[:3], ICD10_DIAGNOSIS_CHAPTERS)


def icd10_procedure_section(code: str) -> str:
    """The section of an ICD-10-PCS code, which is its first character ("procedures 0" is surgery)."""
    return f"procedures {code[0]}"


def chapter_of(category: str, chapters: str) -> str:
    """The range ("first-last", or one category) in which a category lies as text, else "other"."""
    for chapter in chapters.split():
        first, _, last = chapter.partition("-")
        if len(category) == len(first) and first <= category <= (last or first):
            return chapter
    return "other"


def _dotted(code: str, digits: int) -> str:
    plain = code.replace(".", "")
    return f"{plain[:digits]}.{plain[digits:]}" if len(plain) > digits else plain


LIST_SPLITS = dict(zip(("train", "dev", "test"), SPLITS, strict=True))
"""How the names of the lists call the splits."""


def list_names(options: ClinicalOptions, folder: str) -> dict[str, tuple[str, ...]]:
    """Split to the names of its list: in `folder` of what the project publishes, or just there."""
    names = {split: f"{prefix}_{options.codes}_hadm_ids.csv" for prefix, split in LIST_SPLITS.items()}
    return {split: (f"{folder}/{name}", name) for split, name in names.items()}


def open_lists(options: ClinicalOptions, title: str, names: Sequence[tuple[str, ...]]) -> Distribution:
    """The published lists. Raises UserError that says which are missing and who publishes them."""
    if isinstance(options.splits, Path):
        return Distribution(options.splits, title, names)
    raise UserError(
        f"the splits are lists of admission ids, published with {title}",
        key="data.options.splits",
        found=options.splits or "nothing",
        allowed=f"the folder that has {', '.join(choice[-1] for choice in names)}; or seeded",
    )


def read_splits(lists: Distribution, names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Admission to split. Raises UserError for a line that is no id, and for an id of two lists."""
    splits: dict[str, str] = {}
    for split, choice in names.items():
        file = lists.file(*choice)
        for number, line in lists.lines(*choice):
            admission = line.strip()
            if not admission.isdecimal():
                raise UserError(f"line {number} is no admission id", file=file, found=admission or "nothing")
            if splits.setdefault(admission, split) != split:
                problem = f"the admission of line {number} is in the list of {splits[admission]} too"
                raise UserError(problem, file=file, found=admission)
    return splits


def seeded_splits(codes: Codes, seed: int) -> dict[str, str]:
    """Admission to split by a seeded hash of the patient, so that no patient is in two splits."""
    return {admission: assign(patient, seed, FRACTIONS) for admission, patient in codes.patient.items()}
