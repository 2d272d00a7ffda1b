"""ICD codes of the MIMIC tables: their dots, their chapters, and the codes of each admission.

The tables leave the dot out. Without it diagnosis 0117 (011.7) and procedure 0117 (01.17) of ICD-9-CM look
alike. A procedure code that was once read as a number has lost its leading zeros, and nothing brings them
back: 117 may be 01.17 or 11.7. Codes are text from the first byte on.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

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
"""The chapters of ICD-10-CM. Letters follow digits, so that M1A, C7A and Z3A lie in their chapters."""


def icd9_diagnosis(code: str) -> str:
    """A diagnosis code with its dot: after three characters, after four of an E code."""
    return _dotted(code, 4 if code.startswith("E") else 3)


def icd9_procedure(code: str) -> str:
    """A procedure code with its dot, after two digits."""
    return _dotted(code, 2)


def icd9_diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as 428.0, by its range ("390-459")."""
    return _chapter_of(code.partition(".")[0], ICD9_DIAGNOSIS_CHAPTERS)


def icd9_procedure_chapter(code: str) -> str:
    """The chapter of a procedure code such as 38.93 ("procedures 35-39")."""
    return f"procedures {_chapter_of(code.partition('.')[0], ICD9_PROCEDURE_CHAPTERS)}"


def icd10_diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as I2510, by its range ("I00-I99")."""
    return _chapter_of(code[:3], ICD10_DIAGNOSIS_CHAPTERS)


def icd10_procedure_section(code: str) -> str:
    """The section of an ICD-10-PCS code, which is its first character ("procedures 0" is surgery)."""
    return f"procedures {code[0]}"


def _chapter_of(category: str, chapters: str) -> str:
    """The range ("first-last", or one category) in which a category lies as text, else "other"."""
    for chapter in chapters.split():
        first, _, last = chapter.partition("-")
        if len(category) == len(first) and first <= category <= (last or first):
            return chapter
    return "other"


def _dotted(code: str, digits: int) -> str:
    plain = code.replace(".", "")
    return f"{plain[:digits]}.{plain[digits:]}" if len(plain) > digits else plain


class CodeTable(NamedTuple):
    """A table of codes: its file's possible names, and functions that write a code and give its chapter."""

    names: tuple[str, ...]
    write: Callable[[str], str]
    chapter: Callable[[str], str]


@dataclass
class Codes:
    """The codes and the patient of each admission, and the chapter of each code."""

    of: dict[str, list[str]] = field(default_factory=dict)
    patient: dict[str, str] = field(default_factory=dict)
    chapter: dict[str, str] = field(default_factory=dict)

    def add(self, table: CodeTable, rows: Iterable[tuple[str, ...]]) -> None:
        """Adds patient, admission and code of a table's rows; MIMIC-III has some without a code."""
        for patient, admission, written in rows:
            if admission and written.strip():
                # Millions of rows repeat a few thousand codes.
                code = sys.intern(table.write(written.strip()))
                self.of.setdefault(admission, []).append(code)
                self.patient[admission] = patient
                if code not in self.chapter:
                    self.chapter[code] = table.chapter(code)

    def most_frequent(self, admissions: Iterable[str], count: int) -> frozenset[str]:
        """The codes that most of these admissions have; of equally many, the first ones as text."""
        seen = Counter(code for admission in admissions for code in set(self.of.get(admission, ())))
        return frozenset(sorted(seen, key=lambda code: (-seen[code], code))[:count])
