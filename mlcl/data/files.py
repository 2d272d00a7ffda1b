"""Where a data set lies, and how files and folders come under their final names: whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock
from pyarrow import fs

from mlcl.errors import UserError


def locate(place: str | Path) -> tuple[Any, str]:
    """The pyarrow filesystem and the path in it of a folder or URI (`s3://`, `gs://`, `hdfs://`, `file://`).

    Local files are memory-mapped. Raises UserError for a URI that no filesystem takes.
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


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """An empty folder beside `final` that takes its name when the block ends well, and is removed when not.

    Raises FileExistsError where `final` is there by then with something in it.
    """
    with scratch_beside(final) as work:
        yield work
        try:
            work.rename(final)
        except OSError as error:
            if final.exists():
                raise FileExistsError(str(final)) from error
            raise


@contextmanager
def scratch_beside(final: Path) -> Iterator[Path]:
    """An empty folder on the same disk as `final`, removed when the block ends."""
    final.parent.mkdir(parents=True, exist_ok=True)
    work = final.parent / f"{partial_prefix(final)}{uuid.uuid4().hex}"
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def partial_prefix(final: Path) -> str:
    """How the names of unfinished folders of `final` begin."""
    return f".{final.name}.partial-"


def remove_partial(final: Path) -> None:
    """Removes what killed writers left of `final`. The caller must hold its lock."""
    for left in final.parent.glob(f"{partial_prefix(final)}*"):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """A path beside `final` that takes its name when the block ends well, and is removed when not."""
    final.parent.mkdir(parents=True, exist_ok=True)
    work = final.with_name(f"{partial_prefix(final)}{uuid.uuid4().hex}")
    try:
        yield work
        os.replace(work, final)  # noqa: PTH105 (the rename that the whole repository speaks of)
    finally:
        with suppress(FileNotFoundError):
            work.unlink()


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
