"""Writes files and folders atomically, and locks files for the lifetime of a process.

A file or folder NAME is written as `.NAME.HEX.partial` beside NAME, and renamed when it is complete.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LOOK_EVERY = 0.05
"""Seconds between two tries to get a lock."""
BLOCK = 1 << 20
"""The number of bytes that are hashed at once."""
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The `errno` values of a full disk and of an exhausted disk quota."""


def sha256_of(stream: BinaryIO) -> str:
    """Returns the SHA-256 hash, in hexadecimal digits, of the rest of an open file."""
    digest = hashlib.sha256()  # hashlib.file_digest needs Python 3.11
    while block := stream.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _partial_path(final: Path) -> Path:
    return final.with_name(f".{final.name}.{secrets.token_hex(8)}.partial")


def remove_partial(folder: Path, name: str | None = None) -> None:
    """Removes the partial files and folders of `name`, by default of any name, that killed writers left.

    A writer that is still running would lose its files, so the caller must hold the lock of `name` or be the
    only writer.
    """
    for leftover in folder.glob(".*.partial"):
        if name is not None and leftover.name.removesuffix(".partial").rpartition(".")[0] != f".{name}":
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """Yields a path for a file, which is renamed to `final` at the end, or removed after an exception."""
    work = _partial_path(final)
    try:
        yield work
        work.replace(final)
    finally:
        work.unlink(missing_ok=True)


def replace_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Replaces a file's content and flushes it to the disk.

    The new file has the permissions `mode` without those that the umask removes.
    """
    with new_file(path) as work:
        descriptor = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def write_if_missing(file: Path, content: bytes) -> Path:
    """Writes `content` to `file` unless it exists, so the name must identify the content. Returns `file`."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file) as work:
            work.write_bytes(content)
    return file


@contextmanager
def scratch_beside(final: Path) -> Iterator[Path]:
    """Yields an empty folder beside `final`, on the same disk, and removes it when the context ends."""
    work = _partial_path(final)
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yields an empty folder beside `final`. It is renamed to `final`, or removed after an exception.

    Raises FileExistsError if `final` exists at the end of the context and is not empty.
    """
    with scratch_beside(final) as work:
        yield work
        try:
            work.rename(final)
        except OSError as error:
            if final.exists():
                raise FileExistsError(str(final)) from error
            raise


def bytes_on_disk(*folders: Path) -> int:
    """Returns the bytes that all files below the folders occupy; a file with several links counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            with suppress(FileNotFoundError):  # another command may remove a file meanwhile
                status = path.lstat()
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def is_locked(path: Path) -> bool:
    """Whether a process has locked the file. Creates no file. Several checks may run at once."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def lock_file(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Locks the file while the context is open, after a wait of up to `patience` seconds.

    Yields whether the lock was taken: False if another process holds it. The lock ends with the process.
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


@contextmanager
def lock_folder(folder: Path, parent: Path) -> Iterator[None]:
    """Locks `folder` if it lies in `parent`, so that `mlcl doctor` sees that a process is writing it.

    A folder elsewhere is not locked, because the lock file would stay beside the user's own folders. Partial
    folders that killed writers of `folder` left are removed in both cases.
    """
    if folder.resolve().parent != parent.resolve():
        remove_partial(folder.parent, folder.name)
        yield
        return
    with lock_file(parent / f".{folder.name}.lock", patience=float("inf")):
        remove_partial(parent, folder.name)
        yield
