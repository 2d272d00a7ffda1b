"""Parts of the standard library that Python 3.10 does not have."""

from __future__ import annotations

import sys

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
        """Members of an enumeration that are strings, and print as their values."""

        __str__ = str.__str__

    @contextmanager
    def chdir(path: Path) -> Iterator[None]:
        """Changes the working directory in the context."""
        before = Path.cwd()
        os.chdir(path)
        try:
            yield
        finally:
            os.chdir(before)


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception. Python 3.10 prints no notes, but the command line does."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]


__all__ = ["StrEnum", "add_note", "chdir"]
