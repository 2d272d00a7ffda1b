"""Files of public distributions, and the counts that were published for them.

A source opens its files by the names that the distribution gives them; they may lie in a folder, a `.tar`
(compressed or not) or a `.zip`, and up to two folders deep in it. Archives are read in place: nothing is
unpacked. Only regular files count in them, and in a folder a link that leads out of it is refused.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from pydantic import Field

from mlcl.config.section import Section, UserPath
from mlcl.data.source import check_class_names
from mlcl.errors import UserError

SLACK = 0.1
"""The largest accepted difference of an average from the published one, which is rounded."""
UNREADABLE = (
    OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError,
    UnicodeError,
)  # fmt: skip
"""Errors that a damaged file or archive raises; UnicodeError comes from the names in it."""
ENCRYPTED = 1
"""The bit of a zip member's flags that marks it as encrypted."""


class DistributionOptions(Section):
    """The options that every source of a public distribution has."""

    path: UserPath = Field(description="the folder or archive of the distribution")
    check_counts: bool = Field(True, description="compare with the published counts")

    def compare(self, published_counts: Mapping[str, float], counts: Mapping[str, float]) -> None:
        """Compares counts where `check_counts` is set. Raises UserError for a difference."""
        if self.check_counts:
            compare_counts(self.path, published_counts, counts)


class _Folder:
    """The files of a folder by name."""

    def __init__(self, path: Path) -> None:
        self._root = path.resolve()

    def has(self, name: str) -> bool:
        return _exists(self._root / name, Path.is_file)

    def open(self, name: str) -> IO[bytes]:
        file = (self._root / name).resolve()
        if not file.is_relative_to(self._root):
            raise PermissionError("it lies outside the folder")
        return file.open("rb")

    def folders(self) -> Iterator[str]:
        """Yields prefixes of names: the top, then folders one and two deep (`""`, `"a/"`, `"a/b/"`)."""
        yield ""
        for pattern in ("*/", "*/*/"):
            folders = (folder for folder in self._root.glob(pattern) if folder.is_dir())
            yield from sorted(f"{folder.relative_to(self._root).as_posix()}/" for folder in folders)

    def close(self) -> None:
        pass


class _Archive:
    """The regular files of a `.zip` or `.tar` archive, by name."""

    def __init__(self, path: Path) -> None:
        self._file: zipfile.ZipFile | tarfile.TarFile
        self._members: dict[str, Any]
        if zipfile.is_zipfile(path):
            self._file = zipfile.ZipFile(path)
            self._members = {info.filename: info for info in self._file.infolist() if not info.is_dir()}
        else:
            self._file = tarfile.open(path)  # noqa: SIM115 (`close` closes it)
            self._members = {info.name.removeprefix("./"): info for info in self._file if info.isreg()}
        self.close = self._file.close

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        member = self._members[name]
        if isinstance(self._file, zipfile.ZipFile):
            if member.flag_bits & ENCRYPTED:
                raise PermissionError("it is encrypted")
            return self._file.open(member)
        return cast(IO[bytes], self._file.extractfile(member))

    def folders(self) -> Iterator[str]:
        folders = [name.split("/")[:-1] for name in self._members]
        prefixes = {"".join(f"{part}/" for part in parts[:depth]) for parts in folders for depth in range(3)}
        yield from sorted(prefixes, key=lambda prefix: (prefix.count("/"), prefix))


def _open_store(path: Path) -> _Folder | _Archive:
    """Opens a folder or archive. Raises UserError if it is missing or cannot be read."""
    if path.is_dir():
        return _Folder(path)
    if not path.is_file():
        raise UserError("no such file or folder", file=path, key="data.options.path")
    try:
        return _Archive(path)
    except UNREADABLE as error:
        allowed = "a folder, .tar, .tar.gz or .zip"
        raise UserError("cannot be read", file=path, found=error, allowed=allowed) from None


class Distribution(AbstractContextManager["Distribution"]):
    """The files of a distribution, by their published names; a context manager that closes them.

    `title` has name and publisher, for messages. `expected` are the files that must be there; a tuple has the
    possible names of one file. All are looked for in the folder in which the first expected file is found.
    Raises UserError with the files that are missing.
    """

    def __init__(self, path: Path, title: str, expected: Sequence[str | tuple[str, ...]]) -> None:
        self.path = path
        self._title = title
        self._expected_names = [(names,) if isinstance(names, str) else names for names in expected]
        self._store = _open_store(path)
        names = self._expected_names[0]
        bases = (
            base for base in self._store.folders() if any(self._store.has(base + name) for name in names)
        )
        self._base_folder = next(bases, "")
        missing = [" or ".join(names) for names in self._expected_names if self.find_first(*names) is None]
        if missing:
            self._store.close()
            raise UserError(f"files of {title} are missing", file=path, found=f"no {', '.join(missing)}")

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def find_first(self, *names: str) -> str | None:
        """Returns the first of several names for which there is a file, or None."""
        return next((name for name in names if self._store.has(self._base_folder + name)), None)

    @contextmanager
    def open(self, *names: str) -> Iterator[IO[bytes]]:
        """Opens the first of several names for which there is a file, as bytes; `.gz` is decompressed.

        Raises UserError if there is no such file, and if it cannot be read.
        """
        name = self.find_first(*names)
        if name is None:
            problem = f"a file of {self._title} is missing"
            raise UserError(problem, file=self.path, found=f"no {' or '.join(names)}")
        try:
            with (
                self._store.open(self._base_folder + name) as raw,
                cast(IO[bytes], gzip.open(raw) if name.endswith(".gz") else raw) as file,
            ):
                yield file
        except UNREADABLE as error:
            raise self.error(name, "cannot be read; is it whole?", error) from None

    def read(self, *names: str) -> bytes:
        """Reads all bytes of the first of several names for which there is a file."""
        with self.open(*names) as file:
            return file.read()

    def lines(self, *names: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
        """Yields every line with its number from 1, without line end and byte order mark.

        Raises UserError for a line that cannot be decoded.
        """
        with self.open(*names) as file:
            for number, line in enumerate(file, 1):
                content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    yield number, content.decode(encoding).rstrip("\r\n")
                except UnicodeError as error:
                    raise self.error(names, f"line {number} is no text", error, encoding) from None

    def fields(self, *names: str, width: int | None = None, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yields the number and the words of every line that is not blank, but the first `skip` such lines.

        Raises UserError for a line that does not have `width` words.
        """
        lines = ((number, line.split()) for number, line in self.lines(*names))
        for number, words in islice((line for line in lines if line[1]), skip, None):
            if width is not None and len(words) != width:
                problem = f"wrong number of fields at line {number}"
                raise self.error(names, problem, " ".join(words), width)
            yield number, words

    def class_names(self, *names: str) -> tuple[str, ...]:
        """Reads class names, one per line. Raises UserError for no name, and for a name that occurs twice."""
        classes = [line.strip() for _, line in self.lines(*names) if line.strip()]
        return check_class_names(classes, self.file(*names))

    def json(self, name: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
        """Reads a JSON file; `hook` replaces each object. Raises UserError for a file that is not JSON."""
        try:
            return json.loads(self.read(name), object_hook=hook)
        except (ValueError, RecursionError) as error:
            raise self.error(name, "not valid JSON", error) from None

    def file(self, *names: str) -> Path:
        """Returns the path of the first of several names for which there is a file, for messages."""
        return self.path / (self._base_folder + (self.find_first(*names) or names[0]))

    def error(
        self, names: str | Sequence[str], problem: str, found: object = None, allowed: object = None
    ) -> UserError:
        """Creates the error for a file; `names` is its name, or has its possible names."""
        file = self.file(*([names] if isinstance(names, str) else names))
        return UserError(problem, file=file, found=found, allowed=allowed)

    def state(self, *more: str) -> list[Any]:
        """Returns path, size and modification time of the existing files of `expected` and `more`.

        For a folder in `more` the folders directly in it are listed too: their times change when a file is
        added, removed or renamed. For an archive only the archive itself is listed.
        """
        if self.path.is_file():
            return [file_state(self.path)]
        candidates = [self.file(name) for names in (*self._expected_names, more) for name in names]
        files = [file for file in candidates if _exists(file)]
        for folder in [file for file in files if file.is_dir()]:
            with os.scandir(folder) as entries:
                files += sorted(Path(entry) for entry in entries if entry.is_dir())
        return [file_state(file) for file in files]


@dataclass(frozen=True)
class Release:
    """The title and expected files of a distribution; `more` returns further names for its `state`."""

    title: str
    expected: Sequence[str | tuple[str, ...]]
    more: Callable[[Distribution], Iterable[str]] = lambda _: ()

    def open(self, path: Path) -> Distribution:
        """Opens the files in a folder or archive."""
        return Distribution(path, self.title, self.expected)

    def state(self, options: DistributionOptions) -> list[Any]:
        """Returns plain data that changes when one of the files does."""
        with self.open(options.path) as files:
            return files.state(*self.more(files))


def compare_counts(path: Path, published_counts: Mapping[str, float], counts: Mapping[str, float]) -> None:
    """Raises UserError with all counts that differ from the published ones; averages may differ by SLACK.

    A count that is not in `counts` is 0, as for a split without a row.
    """
    counts = {name: counts.get(name, 0) for name in published_counts}
    slack = {name: SLACK if isinstance(count, float) else 0 for name, count in published_counts.items()}
    deviations = [name for name, count in published_counts.items() if abs(counts[name] - count) > slack[name]]
    if deviations:
        raise UserError(
            "not the published counts; check_counts=false accepts them",
            file=path,
            key="data.options.check_counts",
            found=[f"{name} {counts[name]:,}" for name in deviations],
            allowed=[f"{name} {published_counts[name]:,}" for name in deviations],
        )


def _exists(file: Path, test: Callable[[Path], bool] = Path.exists) -> bool:
    # `test` raises OSError for a name that is too long.
    with suppress(OSError):
        return test(file)
    return False


def hash_of_files(root: Path, files: Iterable[Path]) -> str:
    """Returns a hash of the names, sizes and modification times of `files` below `root`."""
    digest = hashlib.sha256(os.fsencode(root.resolve()))
    for file in files:
        stat = file.stat()
        digest.update(os.fsencode(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\n"))
    return digest.hexdigest()


def file_state(file: Path) -> list[Any]:
    """Returns path, size and modification time of a file, as plain data."""
    stat = file.stat()
    return [str(file.resolve()), stat.st_size, stat.st_mtime_ns]
