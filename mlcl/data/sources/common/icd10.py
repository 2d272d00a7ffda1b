"""ICD-10-CM and ICD-10-PCS codes as the MIMIC-IV tables hold them, without the dot: their chapters."""

from __future__ import annotations

from mlcl.data.sources.common.icd9 import chapter_of

DIAGNOSIS_CHAPTERS = (
    "A00-B99 C00-D49 D50-D89 E00-E89 F01-F99 G00-G99 H00-H59 H60-H95 I00-I99 J00-J99 K00-K95 L00-L99 "
    "M00-M99 N00-N99 O00-O9A P00-P96 Q00-Q99 R00-R99 S00-T88 U00-U85 V00-Y99 Z00-Z99"
)
"""The chapters of ICD-10-CM. Letters follow digits, so M1A, C7A and Z3A lie where they belong."""


def diagnosis_chapter(code: str) -> str:
    """The chapter of a diagnosis code such as I2510, by its range ("I00-I99")."""
    return chapter_of(code[:3], DIAGNOSIS_CHAPTERS)


def procedure_section(code: str) -> str:
    """The section of an ICD-10-PCS code, which is its first character ("procedures 0" is surgery)."""
    return f"procedures {code[0]}"
