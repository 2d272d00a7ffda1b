"""ICD-10-CM diagnosis descriptions under chapter > section > category, from the package simple-icd-10-cm.

There is one row for every category and subcategory, that is for every code with fewer than seven characters:
46,881 in the release of April 2026, under 22 chapters, 297 sections and 1,918 categories.
Twelve sections are headings of wider ranges (C00-C96, T20-T32) and hold no code of their own: 285 occur.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from mlcl.config.section import Section
from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.split_assignment import FRACTIONS, assign, shares_note, twin_form
from mlcl.data.writer import RowBatch


class Options(Section):
    """The options of the source `icd10cm`: whether similar texts share a split."""

    twins: Literal["apart", "together"] = Field(
        "apart", description="together: texts that are equal but for numbers or a side share a split"
    )


class Diagnosis(NamedTuple):
    """A diagnosis: its code and description, and its class at each level."""

    code: str
    text: str
    chapter: str
    section: str
    category: str


def read(options: Options, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set with three levels and two hierarchies. Classes keep the order of ICD-10-CM."""
    sections, rows = diagnoses()
    classes = {
        "chapter": list(dict.fromkeys(row.chapter for row in rows)),
        "section": sections,
        "category": list(dict.fromkeys(row.category for row in rows)),
    }
    spaces = {name: LabelSpace(kind="single", classes=tuple(names)) for name, names in classes.items()}
    spaces["path"] = LabelSpace(kind="hierarchy", levels=("chapter", "section"))
    spaces["full_path"] = LabelSpace(kind="hierarchy", levels=("chapter", "section", "category"))
    splits = split_of(rows, split_seed, options.twins)
    notes = shares_note(splits, FRACTIONS, "categories, and what is worded like one, are for training")
    return NewDataset("text", spaces, [_make_batch(rows, classes, splits)], notes)


def diagnoses() -> tuple[list[str], list[Diagnosis]]:
    """Returns the section names, and the diagnoses in the order of the classification.

    The package lists parents before their codes, so a code belongs to the last chapter, section and category
    that were listed before it.
    """
    import simple_icd_10_cm as icd

    sections: list[str] = []
    rows: list[Diagnosis] = []
    chapter = category = ""
    for code in icd.get_all_codes(with_dots=True):
        if icd.is_chapter(code):
            chapter = code
        elif icd.is_block(code) and (not sections or sections[-1] != code):
            # Some sections bear the name of their only category, which then follows at once.
            sections.append(code)
        elif not icd.is_extended_subcategory(code):
            category = code if icd.is_category(code) else category
            rows.append(Diagnosis(code, icd.get_description(code), chapter, sections[-1], category))
    return sections, rows


def split_of(rows: list[Diagnosis], seed: int, twins: Literal["apart", "together"] = "apart") -> list[str]:
    """Assigns splits, 80/10/10, by a seeded hash of the description or its twin form.

    Rows of categories, and rows with the same key, are for training, so that every class of every level has
    a training row.
    """
    keys = [twin_form(row.text) if twins == "together" else row.text for row in rows]
    headings = {key for row, key in zip(rows, keys, strict=True) if row.code == row.category}
    return ["train" if key in headings else assign(key, seed) for key in keys]


def _make_batch(rows: list[Diagnosis], classes: dict[str, list[str]], splits: list[str]) -> RowBatch:
    index = {level: {name: i for i, name in enumerate(names)} for level, names in classes.items()}
    labels = {level: [index[level][getattr(row, level)] for row in rows] for level in classes}
    texts = {"id": [row.code for row in rows], "text": [row.text for row in rows]}
    return {**texts, "split": splits, **labels}


SOURCE = Source(
    name="icd10cm",
    title="ICD-10-CM diagnosis descriptions: chapter > section > category",
    origin="ICD-10-CM by CMS and NCHS, through the Python package simple-icd-10-cm",
    licence="public domain (classification), MIT (package)",
    version="1",
    options=Options,
    read=read,
    packages=("simple-icd-10-cm",),
    groups="category",
)
