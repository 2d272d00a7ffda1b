"""Clinical notes with ICD codes: the part that `mimic3` and `mimic4` share.

A row is an admission that has a split and a note. `codes: 50` leaves out rows without any of the fifty codes,
as published.

The label space `codes` has the codes with a training row; by our reading these are the codes that the papers
count. A validation or test row loses its other codes, unless `allow_untrained` keeps them. `chapters` has the
chapters of the same codes, and `path` is the hierarchy of both.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from mlcl.config.section import UserPath
from mlcl.data.format import SPLITS
from mlcl.data.hierarchies import hierarchy_of
from mlcl.data.source import NewDataset, Workspace, indices, space_of
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions
from mlcl.data.split_assignment import assign, shares_note
from mlcl.data.tables.files import LONGEST_FIELD
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"
WORD = re.compile(r"\b[\d_]*[^\W\d_]\w*")
"""A run of letters, digits and underscores with a letter in it: 250mg is one, 500 and ___ are not."""
TOKEN = re.compile(r"\w+")
"""A run of letters, digits and underscores."""
PATIENT_FRACTIONS = (0.9, 1 / 30, 1 / 15)
"""Fractions of the patients in the splits of MIMIC-IV-ICD, which `splits: seeded` uses as well."""


class CodeTable(NamedTuple):
    """A table of codes: the possible names of its file, and two functions that convert a code.

    `write` converts a code of the table to its usual notation, which `chapter` maps to the code's chapter.
    """

    names: tuple[str, ...]
    write: Callable[[str], str]
    chapter: Callable[[str], str]


@dataclass
class Codes:
    """Maps each admission to its codes (`of`) and to its `patient`, and each code to its `chapter`."""

    of: dict[str, list[str]] = field(default_factory=dict)
    patient: dict[str, str] = field(default_factory=dict)
    chapter: dict[str, str] = field(default_factory=dict)

    def add(self, table: CodeTable, rows: Iterable[tuple[str, ...]]) -> None:
        """Adds the rows (patient, admission, code) of a table. Rows without a code are skipped."""
        for patient, admission, raw_code in rows:
            if admission and raw_code.strip():
                # Millions of rows repeat a few thousand codes.
                code = sys.intern(table.write(raw_code.strip()))
                self.of.setdefault(admission, []).append(code)
                self.patient[admission] = patient
                if code not in self.chapter:
                    self.chapter[code] = table.chapter(code)

    def most_frequent(self, admissions: Iterable[str], count: int) -> frozenset[str]:
        """Returns the `count` codes that most of these admissions have; ties are broken alphabetically."""
        counts = Counter(code for admission in admissions for code in set(self.of.get(admission, ())))
        return frozenset(sorted(counts, key=lambda code: (-counts[code], code))[:count])


class ClinicalOptions(DistributionOptions):
    """The options of the sources `mimic3` and `mimic4`: codes, split and text."""

    codes: Annotated[Literal["full", "50"], BeforeValidator(str)] = Field(
        "full", description="full: all codes; 50: the fifty most frequent"
    )
    splits: Literal["seeded"] | UserPath | None = Field(
        None, description="folder of the lists of admission ids; seeded: by a hash of the patient"
    )
    clean: bool = Field(True, description="lower case, without numbers and punctuation")
    allow_untrained: bool = Field(False, description="keep codes that no training row has")

    def clean_row(self, text: str) -> str:
        """Returns a row's text, after `clean_text` if the option `clean` is set."""
        return clean_text(text) if self.clean else text


def notes_dataset(
    options: ClinicalOptions,
    split_of: Mapping[str, str],
    codes: Codes,
    top: frozenset[str] | None,
    notes: NoteStore,
    name: str,
    published_counts: Mapping[str, float],
) -> NewDataset:
    """Returns the data set of notes with codes, its rows by admission id.

    `top` are the codes that `codes: 50` keeps; None means the most frequent codes of training admissions.
    Raises UserError if no training admission has a note and a code, and, unless the split is seeded or
    `check_counts` is off, if a count differs from `published_counts`.
    """
    code_sets = _codes_by_admission(split_of, codes, top, notes, options)
    train_codes = {
        code for row, row_codes in code_sets.items() if split_of[row] == "train" for code in row_codes
    }
    if not train_codes:
        problem = f"of {len(split_of):,} admissions in the splits no training one has a note and a code"
        raise UserError(problem, file=options.path, key="data.options.splits", found=options.splits)
    classes = sorted(train_codes.union(*code_sets.values()) if options.allow_untrained else train_codes)
    # Ids are numbers without leading zeros: by length, then as text, they are in numeric order.
    rows = sorted(code_sets, key=lambda row: (len(row), row))
    labels, chapter = [code_sets[row].intersection(classes) for row in rows], codes.chapter
    spaces = {"codes": space_of(classes), "chapters": space_of(sorted({chapter[code] for code in classes}))}
    pairs = [[(chapter[code], code) for code in classes]]
    spaces["path"] = hierarchy_of(pairs, ("chapters", "codes"), spaces, options.path)
    splits = [split_of[row] for row in rows]
    columns: dict[str, list[Any]] = {
        "id": rows,
        "split": splits,
        "codes": indices(labels, spaces["codes"]),
        "chapters": indices([{chapter[code] for code in names} for names in labels], spaces["chapters"]),
    }
    seeded = options.splits == "seeded"
    if not seeded:
        average = sum(map(len, labels)) / len(rows)
        counts: dict[str, float] = {split: splits.count(split) for split in SPLITS}
        # Codes without a training row are not in the published number.
        skipped_count = "codes" if options.allow_untrained and options.codes == "full" else ""
        expected_counts = {
            count: number for count, number in published_counts.items() if count != skipped_count
        }
        options.compare(expected_counts, {**counts, "codes": len(classes), "codes a row": average})
    texts = (notes.text(row) for row in rows)
    return NewDataset(
        "text",
        spaces,
        in_batches(columns, "text", map(options.clean_row, texts)),
        shares_note(splits, PATIENT_FRACTIONS, "admissions of a patient share a split") if seeded else (),
        options.allow_untrained,
        name=name,
    )


def _codes_by_admission(
    splits: Mapping[str, str],
    codes: Codes,
    top: frozenset[str] | None,
    notes: NoteStore,
    options: ClinicalOptions,
) -> dict[str, set[str]]:
    """Maps each admission that is kept to its codes, with `codes: 50` only to the fifty codes."""
    rows = [row for row in splits if row in notes]
    if options.codes == "full":
        return {row: set(codes.of.get(row, ())) for row in rows}
    if top is None:
        top = codes.most_frequent((row for row in rows if splits[row] == "train"), 50)
    top_codes = {row: top.intersection(codes.of.get(row, ())) for row in rows}
    return {row: set(row_codes) for row, row_codes in top_codes.items() if row_codes}


class Lists:
    """The published lists of admission ids, one list per split.

    They are looked for in the folder that the option `splits` names: first in its subfolder `folder`, named
    as in the publisher's repository, then in the folder itself. `title` names the publisher. `top` says that
    a file with the fifty codes is published too.
    """

    def __init__(self, options: ClinicalOptions, title: str, folder: str, *, top: bool = False) -> None:
        names = [f"{prefix}_{options.codes}_hadm_ids.csv" for prefix in ("train", "dev", "test")]
        names += ["TOP_50_CODES.csv"] if top and options.codes == "50" else []
        self._path, self._names = options.splits, [(f"{folder}/{name}", name) for name in names]
        self._title = title

    def state(self) -> list[Any]:
        """Returns plain data that changes when a file with a list changes; empty if the splits are seeded."""
        if self._path == "seeded":
            return []
        with self._open() as files:
            return [files.state()]

    def read(self, codes: Codes, seed: int) -> tuple[dict[str, str], frozenset[str] | None]:
        """Returns the split of each admission, and the fifty codes if they are published.

        A seeded split is drawn by a hash of the patient. Raises UserError for a line that is no id, and for
        an id in two lists.
        """
        if self._path == "seeded":
            return {row: assign(key, seed, PATIENT_FRACTIONS) for row, key in codes.patient.items()}, None
        splits: dict[str, str] = {}
        with self._open() as files:
            for split, names in zip(SPLITS, self._names, strict=False):
                for number, line in files.lines(*names):
                    admission = line.strip()
                    if not admission.isdecimal():
                        raise files.error(names, f"line {number} is no admission id", admission or "nothing")
                    if splits.setdefault(admission, split) != split:
                        place = f"in the list of {splits[admission]} too"
                        raise files.error(names, f"the admission of line {number} is {place}", admission)
            top = [line.strip() for names in self._names[3:] for _, line in files.lines(*names)]
        return splits, frozenset(top) or None

    def _open(self) -> Distribution:
        """Opens the lists. Raises UserError that says which are missing and who publishes them."""
        if isinstance(self._path, Path):
            return Distribution(self._path, self._title, self._names)
        raise UserError(
            f"the splits are lists of admission ids, published with {self._title}",
            key="data.options.splits",
            found=self._path or "nothing",
            allowed=f"the folder that has {', '.join(names[-1] for names in self._names)}; or seeded",
        )


def clean_text(text: str) -> str:
    """Returns the words with a letter in lower case, one space between, without numbers or punctuation.

    This is the cleaning of Mullenbach et al. (2018) as Vu et al. (2020) extended it: they also drop tokens
    without a letter that are not numbers. The words of a de-identified [**Hospital 18**] are kept.
    """
    return " ".join(WORD.findall(text.lower()))


def clean_tokens(text: str) -> str:
    """Returns the tokens that are not numbers in lower case, one space between, without punctuation.

    This is the cleaning of Nguyen et al. (2023), MIMIC-IV-ICD. It keeps the ___ of a de-identified name.
    """
    return " ".join(token for token in TOKEN.findall(text.lower()) if not token.isnumeric())


def records(files: Distribution, names: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yields the given columns of every record of a CSV file as text; the case of the header is ignored.

    Raises UserError for a missing column and, with the line, for a wrong number of fields and invalid CSV.
    """
    csv.field_size_limit(LONGEST_FIELD)
    line = 1
    with files.open(*names) as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""), strict=True)
        try:
            header = [name.strip().lower() for name in next(reader, [])]
            missing_columns = [name for name in columns if name.lower() not in header]
            if missing_columns:
                raise files.error(names, "the header line lacks a column", header, missing_columns)
            line = reader.line_num + 1
            pick = itemgetter(*(header.index(name.lower()) for name in columns))
            for fields in reader:
                if fields and len(fields) != len(header):
                    problem = f"wrong number of fields in the record that ends at line {reader.line_num}"
                    raise files.error(names, problem, len(fields), len(header))
                line = reader.line_num + 1
                if fields:
                    yield pick(fields)
        except (csv.Error, UnicodeError) as error:
            raise files.error(names, f"cannot be read at or after line {line}", error) from None


class NoteStore:
    """The notes of each admission, added in any order and held in a scratch file (MIMIC-IV: 3 GB)."""

    def __init__(self, work: Workspace) -> None:
        self._file = work.enter_context(tempfile.TemporaryFile(dir=work.folder))  # noqa: SIM115
        self._places: dict[str, list[tuple[Any, int, int]]] = {}

    def __contains__(self, admission: str) -> bool:
        return admission in self._places

    def add(self, admission: str, order: Any, text: str) -> None:
        """Adds a note. The notes of an admission are sorted by `order`, stably."""
        content = text.encode()
        self._places.setdefault(admission, []).append((order, self._file.tell(), len(content)))
        self._file.write(content)

    def text(self, admission: str) -> str:
        """Joins all notes of an admission, in order. No note can be added after this."""
        places = sorted(self._places[admission], key=itemgetter(0))
        return "\n".join(self._read(offset, size) for _, offset, size in places)

    def _read(self, offset: int, size: int) -> str:
        self._file.seek(offset)
        return self._file.read(size).decode()
