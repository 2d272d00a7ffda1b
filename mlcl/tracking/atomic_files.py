"""Files that are replaced whole, and locks that end with their process."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_EVERY = 0.05
"""Seconds between two tries to get a lock."""


def replace_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Replaces a file's content, whole or not at all: writes a file beside it, then renames that.

    The new file has the permissions `mode`, less those that the umask takes away.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial_files(folder: Path, name: str = "*") -> None:
    """Removes what killed writers left of the file `name`, or of any in the folder.

    The caller must hold the lock that all who write these files hold.
    """
    for left in folder.glob(f".{name}.*.partial"):
        left.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Whether a process has locked the file. Looking creates no file and disturbs no other look."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Locks the file while the context is open, after a wait of up to `patience` seconds.

    Yields False where another process has locked it. The lock ends with its process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + patience
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(LOOK_EVERY)
            else:
                yield True
                return
