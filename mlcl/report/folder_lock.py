"""Folders under the home that one process at a time writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from mlcl.data.files import remove_partial


@contextmanager
def locked_folder(folder: Path, place: Path) -> Iterator[None]:
    """Locks a folder of `place`, by which `doctor` tells its writer from what killed ones left.

    Anywhere else nothing is locked: the lock's file would stay beside a person's own folders.
    """
    if folder.resolve().parent != place.resolve():
        yield
        return
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / f".{folder.name}.lock"):
        remove_partial(folder)
        yield
