"""Where the files of a distribution lie: a folder, a `.tar` (compressed or not) or a `.zip`.

Archives are read in place: nothing is unpacked, so a name that climbs out of the archive names nothing. Only
regular files count there; in a folder a link that leads out of it is refused.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from mlcl.errors import UserError

UNREADABLE = (
    OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError,
    UnicodeError,
)  # fmt: skip
"""What a damaged file or archive raises; UnicodeError for the names in it."""
ENCRYPTED = 1
"""The bit of a zip member's flags that says so."""


class Store(Protocol):
    """Files by name, with `/` between the parts of a name."""

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """One file that is there, as bytes."""
        ...

    def folders(self) -> Iterator[str]:
        """The top, then folders one and two deep, as prefixes of names (`""`, `"a/"`, `"a/b/"`)."""
        ...

    def close(self) -> None:
        """Close the archive."""
        ...


def open_store(path: Path) -> Store:
    """The files of a folder or archive. Raises UserError where there is none, or none that can be read."""
    if path.is_dir():
        return _Folder(path)
    if not path.is_file():
        raise UserError("no such file or folder", file=path, key="data.options.path")
    try:
        return _Zip(path) if zipfile.is_zipfile(path) else _Tar(path)
    except UNREADABLE as error:
        allowed = "a folder, .tar, .tar.gz or .zip"
        raise UserError("cannot be read", file=path, found=error, allowed=allowed) from None


class _Folder:
    def __init__(self, path: Path) -> None:
        self._root = path.resolve()

    def has(self, name: str) -> bool:
        # A name that is too long raises instead.
        with suppress(OSError):
            return (self._root / name).is_file()
        return False

    def open(self, name: str) -> IO[bytes]:
        file = (self._root / name).resolve()
        if not file.is_relative_to(self._root):
            raise PermissionError("it lies outside the folder")
        return file.open("rb")

    def folders(self) -> Iterator[str]:
        yield ""
        for pattern in ("*/", "*/*/"):
            below = (folder for folder in self._root.glob(pattern) if folder.is_dir())
            yield from sorted(f"{folder.relative_to(self._root).as_posix()}/" for folder in below)

    def close(self) -> None:
        pass


class _Zip:
    def __init__(self, path: Path) -> None:
        self._file = zipfile.ZipFile(path)
        self._members = {info.filename: info for info in self._file.infolist() if not info.is_dir()}

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        info = self._members[name]
        if info.flag_bits & ENCRYPTED:
            raise PermissionError("it is encrypted")
        return self._file.open(info)

    def folders(self) -> Iterator[str]:
        return _prefixes(self._members)

    def close(self) -> None:
        self._file.close()


class _Tar:
    def __init__(self, path: Path) -> None:
        self._file = tarfile.open(path)  # noqa: SIM115 (`close` closes it)
        regular = (member for member in self._file if member.isreg())
        self._members = {member.name.removeprefix("./"): member for member in regular}

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        file = self._file.extractfile(self._members[name])
        assert file is not None
        return file

    def folders(self) -> Iterator[str]:
        return _prefixes(self._members)

    def close(self) -> None:
        self._file.close()


def _prefixes(names: Iterable[str]) -> Iterator[str]:
    folders = [name.split("/")[:-1] for name in names]
    prefixes = {"".join(f"{part}/" for part in parts[:depth]) for parts in folders for depth in range(3)}
    yield from sorted(prefixes, key=lambda prefix: (prefix.count("/"), prefix))
