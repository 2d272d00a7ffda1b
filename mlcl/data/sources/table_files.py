"""Files of a user's rows: CSV, JSON, Parquet and lines of texts, images or vectors, with labels by column."""

from __future__ import annotations

import codecs
from typing import Any

from pydantic import Field, field_validator

from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.distribution import file_state
from mlcl.data.tables.files import ENCODING, Dialect
from mlcl.data.tables.formats import open_table
from mlcl.data.tables.options import HierarchyOf, TableOptions
from mlcl.data.tables.table import read_table
from mlcl.errors import UserError


class TextFileOptions(TableOptions):
    """Options of text files."""

    encoding: str = Field(ENCODING, description="utf-8-sig: UTF-8 with or without a byte order mark")

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError("unknown encoding") from None
        return encoding


class CsvOptions(TextFileOptions):
    """Options of CSV files."""

    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="between fields; default: as the first lines have it"
    )
    header: bool | None = Field(
        None, description="whether the first line names the columns; default: yes, unless it looks like data"
    )


def read(options: TableOptions, split_seed: int, _work: Workspace) -> NewDataset:
    """The data set. Raises UserError with the file, the line or row, and the column."""
    given = options.model_dump(include={"encoding", "delimiter", "header"})
    return read_table(options, [open_table(path, Dialect(**given)) for path in options.path], split_seed)


def state(options: TableOptions) -> list[Any]:
    """Plain data that changes when the files do. Raises UserError for a file that is not there."""
    files = [("path", path) for path in options.path]
    for name, label in options.labels.items():
        if isinstance(label, HierarchyOf) and label.parents is not None:
            files.append((f"labels.{name}.parents", label.parents))
    for key, file in files:
        if not file.is_file():
            raise UserError("no such file", file=file, key=f"data.options.{key}")
    return [part for _, file in files for part in file_state(file)]


def _source(name: str, title: str, options: type[TableOptions]) -> Source[Any]:
    return Source(
        name=name,
        title=title,
        licence="the file's own",
        version="3",
        options=options,
        read=read,
        state=state,
    )


COLUMNS = "of texts, images or vectors, labels by column"
CSV = _source("csv", f"CSV files {COLUMNS}", CsvOptions)
JSONL = _source("jsonl", f"JSON objects, one a line or in an array, {COLUMNS}", TextFileOptions)
PARQUET = _source("parquet", f"Parquet files {COLUMNS}", TableOptions)
TXT = _source("txt", "text files, a row a line, its labels before it as fastText has them", CsvOptions)
