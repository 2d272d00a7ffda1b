"""What `mimic3` and `mimic4` share: notes as rows, ICD codes as labels.

A row is an admission that has a split and a note. `codes: 50` leaves out rows without any of the fifty codes,
as published.

The label space `codes` has the codes with a training row: those the papers count, by our reading. A
validation or test row loses its other codes, unless `allow_untrained` keeps them. `chapters` has the chapters
of the same codes, `path` is the hierarchy of both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from mlcl.config.section import UserPath
from mlcl.data.format import SPLITS, DatasetInfo
from mlcl.data.label_spaces import hierarchy_of, indices, space_of
from mlcl.data.sources.common.distribution import DistributionOptions, compare_counts
from mlcl.data.sources.common.notes import NoteStore, clean_text
from mlcl.data.split_assignment import FRACTIONS, shares_note
from mlcl.data.writer import in_batches, write_dataset
from mlcl.errors import UserError

LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"


class ClinicalOptions(DistributionOptions):
    """What is taken from the tables."""

    codes: Annotated[Literal["full", "50"], BeforeValidator(str)] = Field(
        "full", description="full: all codes; 50: the fifty most frequent"
    )
    splits: Literal["seeded"] | UserPath | None = Field(
        None, description="folder of the lists of admission ids; seeded: by a hash of the patient"
    )
    clean: bool = Field(True, description="lower case, words with a letter only, no punctuation")
    allow_untrained: bool = Field(False, description="keep codes that no training row has")


class CodeTable(NamedTuple):
    """A table of codes: its file's possible names, how to write its codes, and their chapters."""

    names: tuple[str, ...]
    write: Callable[[str], str]
    chapter: Callable[[str], str]


@dataclass
class Codes:
    """The codes and the patient of each admission, and the chapter of each code."""

    of: dict[str, list[str]] = field(default_factory=dict)
    patient: dict[str, str] = field(default_factory=dict)
    chapter: dict[str, str] = field(default_factory=dict)

    def add(self, patient: str, admission: str, code: str, table: CodeTable) -> None:
        """Add one row of a table. MIMIC-III has some without a code, which are left out."""
        if admission and code.strip():
            # Millions of rows repeat a few thousand codes.
            code = sys.intern(table.write(code.strip()))
            self.of.setdefault(admission, []).append(code)
            self.patient[admission] = patient
            if code not in self.chapter:
                self.chapter[code] = table.chapter(code)

    def most_frequent(self, admissions: Iterable[str], count: int) -> frozenset[str]:
        """The codes that most of these admissions have; of equally many, the first ones as text."""
        seen = Counter(code for admission in admissions for code in set(self.of.get(admission, ())))
        return frozenset(sorted(seen, key=lambda code: (-seen[code], code))[:count])


@dataclass(frozen=True)
class Admissions:
    """The split and the codes of each admission, and what `codes: 50` keeps where that is given."""

    splits: Mapping[str, str]
    codes: Codes
    top: frozenset[str] | None = None


def write_notes(
    folder: Path,
    options: ClinicalOptions,
    admissions: Admissions,
    notes: NoteStore,
    *,
    name: str,
    title: str,
    published: Mapping[str, float],
) -> DatasetInfo:
    """Write the data set, its rows by admission id.

    Raises UserError where the counts are not the published ones, unless the split is seeded.
    """
    rows, classes, labels = _labelled(admissions, notes, options)
    chapter = admissions.codes.chapter
    spaces = {
        "codes": space_of(classes),
        "chapters": space_of(sorted({chapter[code] for code in classes})),
    }
    pairs = [[(chapter[code], code) for code in classes]]
    spaces["path"] = hierarchy_of(pairs, ("chapters", "codes"), spaces, options.path)
    columns: dict[str, list[Any]] = {
        "id": rows,
        "split": [admissions.splits[row] for row in rows],
        "codes": indices(labels, spaces["codes"]),
        "chapters": indices([{chapter[code] for code in own} for own in labels], spaces["chapters"]),
    }
    _compare(options, published, _counts(columns, classes))
    texts = (notes.text(row) for row in rows)
    reason = "admissions of a patient share a split"
    said = shares_note(columns["split"], FRACTIONS, reason) if options.splits == "seeded" else []
    return write_dataset(
        folder,
        name=name,
        modality="text",
        label_spaces=spaces,
        batches=in_batches(columns, "text", map(clean_text, texts) if options.clean else texts),
        source=title,
        licence=LICENCE,
        allow_untrained=options.allow_untrained,
        notes=said,
    )


def _labelled(
    admissions: Admissions, notes: NoteStore, options: ClinicalOptions
) -> tuple[list[str], list[str], list[set[str]]]:
    """The rows, the classes, and the classes of each row."""
    splits = admissions.splits
    kept = _kept(admissions, [row for row in splits if row in notes], options)
    trained = {code for row, own in kept.items() if splits[row] == "train" for code in own}
    classes = trained.union(*kept.values()) if options.allow_untrained else trained
    if not classes:
        problem = f"of {len(splits):,} admissions in the splits no training one has a note and a code"
        raise UserError(problem, file=options.path, key="data.options.splits", found=options.splits)
    for own in kept.values():
        own &= classes
    # Numbers without leading zeros, by size.
    rows = sorted(kept, key=lambda row: (len(row), row))
    return rows, sorted(classes), [kept[row] for row in rows]


def _kept(admissions: Admissions, rows: list[str], options: ClinicalOptions) -> dict[str, set[str]]:
    """The rows that stay, each with those of its codes that count."""
    codes, top = admissions.codes, admissions.top
    if options.codes == "full":
        return {row: set(codes.of.get(row, ())) for row in rows}
    if top is None:
        top = codes.most_frequent((row for row in rows if admissions.splits[row] == "train"), 50)
    found = {row: top.intersection(codes.of.get(row, ())) for row in rows}
    return {row: set(own) for row, own in found.items() if own}


def _counts(columns: Mapping[str, list[Any]], classes: list[str]) -> dict[str, float]:
    rows = Counter(columns["split"])
    average = sum(map(len, columns["codes"])) / len(columns["id"])
    return {split: rows[split] for split in SPLITS} | {"codes": len(classes), "codes a row": average}


def _compare(options: ClinicalOptions, published: Mapping[str, float], found: Mapping[str, float]) -> None:
    """Compares counts, but not of a seeded split. Codes without a training row are not in the published."""
    if options.check_counts and options.splits != "seeded":
        skip = "codes" if options.allow_untrained and options.codes == "full" else ""
        compare_counts(options.path, {n: c for n, c in published.items() if n != skip}, found)
