"""Parts of the standard library that Python 3.10 does not have."""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import Any

if sys.version_info >= (3, 11):
    from contextlib import chdir
    from enum import StrEnum
else:
    import os
    from collections.abc import Iterator
    from contextlib import contextmanager
    from enum import Enum
    from pathlib import Path

    class StrEnum(str, Enum):
        """An enumeration whose members are strings that print as their values."""

        __str__ = str.__str__

    @contextmanager
    def chdir(path: Path) -> Iterator[None]:
        """Changes the working directory in the context."""
        old_folder = Path.cwd()
        os.chdir(path)
        try:
            yield
        finally:
            os.chdir(old_folder)


class SqliteCode(IntEnum):
    """Primary error codes of SQLite."""

    BUSY = 5
    LOCKED = 6
    READONLY = 8
    IOERR = 10
    FULL = 13
    CANTOPEN = 14


SQLITE_MESSAGES = {
    "database is locked": SqliteCode.BUSY,
    "database table is locked": SqliteCode.LOCKED,
    "attempt to write a readonly database": SqliteCode.READONLY,
    "disk I/O error": SqliteCode.IOERR,
    "database or disk is full": SqliteCode.FULL,
    "unable to open database file": SqliteCode.CANTOPEN,
}
"""The error code of each of SQLite's messages, since Python 3.10 gives only the message."""


def sqlite_code(error: Exception) -> int:
    """Returns SQLite's primary code of an error, in Python 3.10 from its message; 0 if it is not known."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return SQLITE_MESSAGES.get(str(error), 0) if code is None else code & 0xFF


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception. Python 3.10 prints no notes, but the command line does."""
    noted: Any = error
    noted.__notes__ = [*getattr(error, "__notes__", ()), note]


__all__ = ["SqliteCode", "StrEnum", "add_note", "chdir", "sqlite_code"]
