"""Clinical notes from large CSV tables: read record by record, kept by admission, cleaned.

Notes hold quotes and line ends inside their fields. MIMIC-III heads its columns in capitals and its demo in
small letters, so the case of a header does not count.
"""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from mlcl.data.sources.common.distribution import Distribution
from mlcl.data.tables.csv_file import LONGEST_FIELD
from mlcl.errors import UserError

WORD = re.compile(r"\b[\d_]*+[^\W\d_]\w*")
"""A run of letters, digits and underscores with a letter in it: 250mg is one, 500 and ___ are not."""


def clean_text(text: str) -> str:
    """Lower-case words with a letter in them, one space between: no numbers, no punctuation.

    The cleaning of Mullenbach et al. (2018) as Vu et al. (2020) run it, who also drop what has no letter but
    is no number, such as the ___ of MIMIC-IV. Of a de-identified [**Hospital 18**] the words stay.
    """
    return " ".join(WORD.findall(text.lower()))


def records(files: Distribution, names: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The given columns of every record of a CSV file, as text.

    Raises UserError with the line for a missing column, a wrong number of fields and what is no CSV.
    """
    csv.field_size_limit(LONGEST_FIELD)
    where = files.file(*names)
    line = 1
    with files.open(*names) as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""), strict=True)
        try:
            header = [name.strip().lower() for name in next(reader, [])]
            missing = [name for name in columns if name.lower() not in header]
            if missing:
                raise UserError("the header line lacks a column", file=where, found=header, allowed=missing)
            line = reader.line_num + 1
            pick = itemgetter(*(header.index(name.lower()) for name in columns))
            for fields in reader:
                if fields and len(fields) != len(header):
                    problem = f"wrong number of fields in the record that ends at line {reader.line_num}"
                    raise UserError(problem, file=where, found=len(fields), allowed=len(header))
                line = reader.line_num + 1
                if fields:
                    yield pick(fields)
        except (csv.Error, UnicodeError) as error:
            raise UserError(f"cannot be read at or after line {line}", file=where, found=error) from None


class NoteStore:
    """The notes of each admission, in a scratch file beside the data set. A context manager.

    All discharge summaries of MIMIC-IV together take some 3 GB, and those of one admission need not follow
    each other.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (`__exit__` closes it)
        self._places: dict[str, list[tuple[Any, int, int]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, admission: str) -> bool:
        return admission in self._places

    def add(self, admission: str, order: Any, text: str) -> None:
        """Keep a note; `order` sorts those of an admission, and equal ones stay as they came."""
        content = text.encode()
        place = (order, self._file.tell(), len(content))
        self._file.write(content)
        self._places.setdefault(admission, []).append(place)

    def text(self, admission: str) -> str:
        """All notes of an admission, in order. After this no note can be added."""
        places = sorted(self._places[admission], key=itemgetter(0))
        return "\n".join(self._read(first, size) for _, first, size in places)

    def _read(self, first: int, size: int) -> str:
        self._file.seek(first)
        return self._file.read(size).decode()
