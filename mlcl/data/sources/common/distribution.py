"""What the sources of public distributions share: their files, and the counts that were published for them.

A source opens its files by the names that the distribution gives them; they may lie in a folder, a `.tar`,
`.tar.gz` or `.zip`, and up to two folders deep in it. Nothing is unpacked, and a link is never followed out
of the folder.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

from pydantic import Field

from mlcl.config.section import Section, UserPath
from mlcl.data.label_spaces import distinct
from mlcl.data.sources.common.archive import UNREADABLE, open_store
from mlcl.data.split_assignment import assign
from mlcl.errors import UserError

SLACK = 0.1
"""How far an average may lie from the published one, which is rounded."""


class DistributionOptions(Section):
    """The options that every source of a public distribution has."""

    path: UserPath = Field(description="the folder or archive of the distribution")
    check_counts: bool = Field(True, description="compare with the published counts")

    def compare(self, published: Mapping[str, float], found: Mapping[str, float]) -> None:
        """Compare counts where that is asked for. Raises UserError as `compare_counts` does."""
        if self.check_counts:
            compare_counts(self.path, published, found)


class Distribution:
    """The files of a distribution, by the names that it gives them. A context manager.

    `expected` lists the files that must be there; a tuple means any one of several. The first of them tells
    how deep the others lie. Raises UserError that lists what is missing; `title` says what to get from whom.
    """

    def __init__(self, path: Path, title: str, expected: Sequence[str | tuple[str, ...]]) -> None:
        self.path = path
        self._title = title
        self._expected = [(names,) if isinstance(names, str) else names for names in expected]
        self._store = open_store(path)
        self._base = self._find_base()
        missing = [" or ".join(names) for names in self._expected if self.first(*names) is None]
        if missing:
            self._store.close()
            raise UserError(f"files of {title} are missing", file=path, found=f"no {', '.join(missing)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def first(self, *names: str) -> str | None:
        """The first of several names that is there, or None."""
        return next((name for name in names if self._store.has(self._base + name)), None)

    @contextmanager
    def open(self, *names: str) -> Iterator[IO[bytes]]:
        """The first of several names that is there, as bytes; `.gz` is decompressed.

        Raises UserError where there is none, and for what cannot be read.
        """
        name = self.first(*names)
        if name is None:
            problem = f"a file of {self._title} is missing"
            raise UserError(problem, file=self.path, found=f"no {' or '.join(names)}")
        try:
            with self._store.open(self._base + name) as raw, _plain(name, raw) as file:
                yield file
        except UNREADABLE as error:
            raise UserError("cannot be read; is it whole?", file=self.file(name), found=error) from None

    def read(self, *names: str) -> bytes:
        """All bytes of the first of several names that is there."""
        with self.open(*names) as file:
            return file.read()

    def lines(self, *names: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
        """Every line with its number from 1, without its end and without a byte order mark.

        Raises UserError for one that is no text.
        """
        with self.open(*names) as file:
            for number, line in enumerate(file, 1):
                content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    yield number, content.decode(encoding).rstrip("\r\n")
                except UnicodeError as error:
                    raise UserError(
                        f"line {number} is no text", file=self.file(*names), found=error, allowed=encoding
                    ) from None

    def class_names(self, *names: str) -> tuple[str, ...]:
        """The names in a file with one a line. Raises UserError for none and for one that comes twice."""
        found = [line.strip() for _, line in self.lines(*names) if line.strip()]
        return distinct(found, self.file(*names))

    def json(self, name: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
        """What a JSON file holds; `hook` replaces each object as it is read. Raises UserError for no JSON."""
        try:
            return json.loads(self.read(name), object_hook=hook)
        except (ValueError, RecursionError) as error:
            raise UserError("not valid JSON", file=self.file(name), found=error) from None

    def file(self, *names: str) -> Path:
        """Where the first of several names that is there lies, for messages."""
        return self.path / (self._base + (self.first(*names) or names[0]))

    def state(self, *more: str) -> list[Any]:
        """Path, size and time of change of each file: the expected ones, and of `more` those that are there.

        A folder in `more` stands for itself and the folders in it: these change when a file is added, removed
        or renamed. Of an archive it is the archive itself.
        """
        if self.path.is_file():
            return [file_state(self.path)]
        named = [self.file(name) for names in (*self._expected, more) for name in names]
        files = [file for file in named if _exists(file)]
        files += [below for file in files if file.is_dir() for below in _folders(file)]
        return [file_state(file) for file in files]

    def _find_base(self) -> str:
        first = self._expected[0]
        return next((f for f in self._store.folders() if any(self._store.has(f + n) for n in first)), "")


@dataclass(frozen=True)
class Release:
    """What a source reads: `title`, the `expected` files, and `more` that may change, as in Distribution."""

    title: str
    expected: Sequence[str | tuple[str, ...]]
    more: tuple[str, ...] = ()

    def open(self, path: Path) -> Distribution:
        """The files in a folder or archive."""
        return Distribution(path, self.title, self.expected)

    def state(self, options: DistributionOptions) -> list[Any]:
        """Plain data that changes when one of the files does."""
        with self.open(options.path) as files:
            return files.state(*self.more)


def hold_out(key: str, seed: int, share: float) -> str:
    """`validation` for a seeded share of the keys, else `train`."""
    return assign(key, seed, (1 - share, share, 0.0))


def compare_counts(path: Path, published: Mapping[str, float], found: Mapping[str, float]) -> None:
    """Raise UserError that names every count which is not the published one; averages may differ by SLACK.

    What was not found counts as 0: a split without a row.
    """
    found = {name: found.get(name, 0) for name in published}
    slack = {name: SLACK if isinstance(count, float) else 0 for name, count in published.items()}
    differ = [name for name, count in published.items() if abs(found[name] - count) > slack[name]]
    if differ:
        raise UserError(
            "not the published counts; check_counts=false accepts them",
            file=path,
            key="data.options.check_counts",
            found=[f"{name} {found[name]:,}" for name in differ],
            allowed=[f"{name} {published[name]:,}" for name in differ],
        )


def _plain(name: str, file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file)) if name.endswith(".gz") else file


def _folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(Path(entry) for entry in entries if entry.is_dir())


def _exists(file: Path) -> bool:
    # A name that is too long raises instead.
    with suppress(OSError):
        return file.exists()
    return False


def hash_of_files(root: Path, files: Iterable[Path]) -> str:
    """A hash of the names, sizes and times of files below `root`."""
    digest = hashlib.sha256(str(root.resolve()).encode())
    for file in files:
        stat = file.stat()
        digest.update(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def file_state(file: Path) -> list[Any]:
    """Path, size and time of change of a file, as plain data."""
    stat = file.stat()
    return [str(file.resolve()), stat.st_size, stat.st_mtime_ns]
