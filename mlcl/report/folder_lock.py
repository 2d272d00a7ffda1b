"""Locks for folders under the home that one process at a time writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from mlcl.data.files import remove_partial


@contextmanager
def locked_folder(folder: Path, place: Path) -> Iterator[None]:
    """Locks `folder` where its parent is `place`, so that doctor recognises a live writer.

    Elsewhere it locks nothing, because the file of the lock would stay beside the user's own folders.
    """
    if folder.resolve().parent != place.resolve():
        yield
        return
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / f".{folder.name}.lock"):
        remove_partial(folder)
        yield
