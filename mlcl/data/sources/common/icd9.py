"""ICD-9-CM codes as the MIMIC tables hold them: where the dot goes, and which chapter a code belongs to.

The tables leave the dot out, so that diagnosis 0117 (011.7) and procedure 0117 (01.17) look alike until it
is back. A procedure code that was once read as a number has lost its leading zeros, and nothing brings them
back: 117 may be 01.17 or 11.7. Codes are text from the first byte on.
"""

from __future__ import annotations

DIAGNOSIS_CHAPTERS = (
    "001-139 140-239 240-279 280-289 290-319 320-389 390-459 460-519 520-579 "
    "580-629 630-679 680-709 710-739 740-759 760-779 780-799 800-999 V01-V91 E000-E999"
)
"""The chapters of volume 1, and its two supplementary classifications."""
PROCEDURE_CHAPTERS = (
    "00 01-05 06-07 08-16 17 18-20 21-29 30-34 35-39 40-41 42-54 55-59 60-64 65-71 72-75 76-84 85-86 87-99"
)
"""The chapters of volume 3."""


def diagnosis(code: str) -> str:
    """A diagnosis code with its dot: after three characters, after four of an E code."""
    return _dotted(code, 4 if code.startswith("E") else 3)


def procedure(code: str) -> str:
    """A procedure code with its dot, after two digits."""
    return _dotted(code, 2)


def diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as 428.0, by its range ("390-459")."""
    return chapter_of(code.partition(".")[0], DIAGNOSIS_CHAPTERS)


def procedure_chapter(code: str) -> str:
    """The chapter of a procedure code such as 38.93 ("procedures 35-39")."""
    return f"procedures {chapter_of(code.partition('.')[0], PROCEDURE_CHAPTERS)}"


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
