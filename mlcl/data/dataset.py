"""A prepared data set. Opening it reads `dataset.json` and the Parquet footers; columns are read later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from mlcl.config.section import validate
from mlcl.data.columns import ShardReader, equal_texts
from mlcl.data.format import INFO_FILE, SPLITS, DatasetInfo, HeldOut, Shard, columns
from mlcl.data.split import Split, SplitRows
from mlcl.errors import UserError
from mlcl.files import sha256_of


def locate(place: str | Path) -> tuple[Any, str]:
    """Returns the pyarrow filesystem and the path in it for a folder or a URI.

    A URI begins with `s3://`, `gs://`, `hdfs://` or `file://`. Local files are memory-mapped. Raises
    UserError for a URI that pyarrow cannot open.
    """
    text = str(place)
    if "://" not in text:
        return fs.LocalFileSystem(use_mmap=True), str(Path(text).expanduser().absolute())
    try:
        system, path = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError("no filesystem for this URI", file=text, found=error) from None
    local = isinstance(system, fs.LocalFileSystem)
    return (fs.LocalFileSystem(use_mmap=True) if local else system), path


class Dataset:
    """A prepared data set: a folder with `dataset.json` and Parquet shards, which is read split by split.

    Example:
        data = Dataset.open(prepare("digits", Path("outputs/data")))
        train = data.split("train")
        train.images()[0], train.labels("digits").lists()[0]
    """

    def __init__(self, reader: ShardReader, drawn: Mapping[str, NDArray[np.int64]] | None = None) -> None:
        """`drawn` maps each redrawn split to its ascending row numbers; other splits are as stored."""
        self.reader = reader
        self._drawn_rows = drawn or {}
        self.place = reader.place
        self.info = reader.info
        self._splits: dict[tuple[str, bool], SplitRows | None] = {}

    @classmethod
    def open(cls, place: str | Path, verify: bool = False, notes: Path | None = None) -> Dataset:
        """Opens a data set; no labels are read.

        Args:
            place: A folder or a pyarrow filesystem URI.
            verify: Whether to compare the SHA-256 of every shard with the one in `dataset.json`.
            notes: A folder for an empty file that records that all shards were compared. They are compared
                again if the size or modification time of a shard changes. If the parent of `notes` is
                missing, nothing is recorded.

        Raises:
            UserError: For an invalid `dataset.json`, and for a shard that is missing or differs from it. The
                error names the file.
        """
        filesystem, folder = locate(place)
        info = _read_info(filesystem, folder, str(place))
        data = cls(ShardReader(str(place), filesystem, folder, info))
        for number, shard in enumerate(info.shards):
            data._check_footer(number, shard)
        note = notes / f".verified-{_hash_shards(filesystem, folder, info)}" if notes is not None else None
        if not verify or (note is not None and note.exists()):
            return data
        for number, shard in enumerate(info.shards):
            with filesystem.open_input_stream(f"{folder}/{shard.file}") as stream:
                digest = sha256_of(stream)
            if digest != shard.sha256:
                file = data.reader.shard_file(number)
                raise UserError("SHA-256 differs", file=file, found=digest, allowed=shard.sha256)
        if note is not None:
            with suppress(OSError):  # without a note, the next command compares again
                note.parent.mkdir(exist_ok=True)
                note.touch()
        return data

    def split(self, name: str) -> Split:
        """Returns the rows of `train`, `validation` or `test` that have no held-out class.

        Only evaluation reads the test split. Raises UserError if the data set has no such split, or if every
        row of it has a held-out class.
        """
        rows = self._split_rows(name, unseen=False)
        if rows is None:
            raise UserError(
                "every row has a held-out class", file=self.place, key="data.hold_out", found=name
            )
        return Split(rows)

    def unseen(self, name: str) -> Split | None:
        """Returns the rows of a split that have a held-out class; None if there are no such rows."""
        rows = self._split_rows(name, unseen=True) if self.info.held_out is not None else None
        return None if rows is None else Split(rows)

    def without(self, classes: HeldOut) -> Dataset:
        """Returns the data set with these classes held out: `split` omits their rows, `unseen` has them."""
        return Dataset(self.reader.with_info(self.info.without(classes)), self._drawn_rows)

    def with_validation(self, seed: int, drawn: Mapping[str, NDArray[np.int64]]) -> Dataset:
        """Returns the data set with other train and validation rows, which were drawn with `seed`.

        `drawn` maps each of the two splits to its ascending row numbers.
        """
        rows = {name: len(drawn[name]) if name in drawn else n for name, n in self.info.rows.items()}
        return Dataset(self.reader.with_info(self.info.with_validation(seed, rows)), drawn)

    def _split_rows(self, name: str, *, unseen: bool) -> SplitRows | None:
        if name not in SPLITS or not self.info.rows.get(name):
            splits = [split for split, rows in self.info.rows.items() if rows]
            raise UserError("the data set has no such split", file=self.place, found=name, allowed=splits)
        if (name, unseen) not in self._splits:
            rows, held_out = SplitRows(self.reader, name, self._row_numbers(name)), self.info.held_out
            self._splits[name, unseen] = (
                rows if held_out is None else rows.filter_classes(held_out, unseen=unseen)
            )
        return self._splits[name, unseen]

    def _row_numbers(self, name: str) -> NDArray[np.int64]:
        """Returns the row numbers of a split in the whole data set, ascending."""
        if name in self._drawn_rows:
            return self._drawn_rows[name]
        split_columns = [self.reader.column(number, "split") for number in range(len(self.info.shards))]
        rows = np.flatnonzero(np.concatenate([equal_texts(column, name) for column in split_columns]))
        declared_count = self.info.rows[name]  # type: ignore[index]
        if len(rows) != declared_count:
            problem, file = "the shards have another number of rows", f"{self.place.rstrip('/')}/{INFO_FILE}"
            raise UserError(problem, file=file, key=f"rows.{name}", found=declared_count, allowed=len(rows))
        return rows

    def _check_footer(self, number: int, shard: Shard) -> None:
        footer, file = self.reader.parquet(number), self.reader.shard_file(number)
        if footer.metadata.num_rows != shard.rows:
            raise UserError(
                "wrong number of rows", file=file, found=footer.metadata.num_rows, allowed=shard.rows
            )
        with self.reader.reading(number):
            types = {field.name: field.type for field in footer.schema_arrow}
        expected = columns(self.info.modality, self.info.label_spaces, self.info.dim, self.info.grouped)
        for name, type_ in expected.items():
            if name not in types:
                problem, allowed = "column is missing", list(expected)
                raise UserError(problem, file=file, key=name, found=list(types), allowed=allowed)
            if types[name] != type_:
                raise UserError("wrong column type", file=file, key=name, found=types[name], allowed=type_)


def _hash_shards(filesystem: Any, folder: str, info: DatasetInfo) -> str:
    """Returns a hash of the paths, recorded SHA-256, sizes and modification times of all shards."""
    files = filesystem.get_file_info([f"{folder}/{shard.file}" for shard in info.shards])
    state = [
        (file.path, shard.sha256, file.size, file.mtime_ns)
        for file, shard in zip(files, info.shards, strict=True)
    ]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]


def _read_info(filesystem: Any, folder: str, place: str) -> DatasetInfo:
    file = f"{place.rstrip('/')}/{INFO_FILE}"
    try:
        with filesystem.open_input_stream(f"{folder}/{INFO_FILE}") as stream:
            tree = json.loads(stream.read())
    except FileNotFoundError:
        raise UserError("not a prepared data set: no such file", file=file) from None
    except (OSError, pa.ArrowException) as error:
        raise UserError("cannot be read", file=file, found=error) from None
    except (ValueError, RecursionError) as error:
        raise UserError("not valid JSON", file=file, found=error) from None
    if not isinstance(tree, dict):
        raise UserError("must be a mapping of keys", file=file, found=type(tree).__name__)
    return validate(DatasetInfo, tree, file)
