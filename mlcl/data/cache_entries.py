"""The cache in the home (the folder of results): reads its entries, lists them with sizes, removes them.

Every entry `cache/KIND/NAME` can be removed: it is computed again when it is needed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

from filelock import FileLock, Timeout

from mlcl.errors import UserError
from mlcl.files import new_file, new_folder, remove_partial

ABOUT = "about.json"
"""The name of the file in which an entry that is a folder may describe itself."""
DAMAGED = (OSError, ValueError, EOFError, KeyError, BadZipFile)
"""Errors that readers of JSON and of NumPy's files raise for a file that is cut off, empty or gone."""

T = TypeVar("T")


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder `cache/KIND/NAME`; `about` comes from its file `ABOUT`, `bytes` is its size."""

    path: Path
    kind: str
    about: str
    bytes: int


def read_cached(
    path: Path, write: Callable[[Path], None], read: Callable[[Path], T], *, is_folder: bool = False
) -> T:
    """Reads an entry of the cache with `read`. If it is missing or damaged, `write` creates it first.

    `write` gets a temporary path, which is renamed to `path` when `write` has returned. Of several processes
    that need an entry, one writes it and the others wait. An entry is damaged if `read` raises one of
    `DAMAGED`; a changed value in a readable file goes unnoticed. Raises UserError if the entry cannot be
    written.
    """
    if path.exists():
        with suppress(*DAMAGED):
            return read(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(_lock_path(path)):
            if path.exists():  # either damaged or just written by another process
                with suppress(*DAMAGED):
                    return read(path)
                _remove(path)
            if not path.exists():
                remove_partial(path.parent, path.name)
                with new_folder(path) if is_folder else new_file(path) as work_path:
                    write(work_path)
    except OSError as error:
        raise UserError("cannot be written", file=path, found=error) from None
    return read(path)


def cache_entries(home: Path) -> list[CacheEntry]:
    """Returns all entries of the cache, the largest first."""
    paths = [path for path in (home / "cache").glob("*/*") if not path.name.startswith(".")]
    entries = [CacheEntry(path, path.parent.name, _describe(path), _total_bytes(path)) for path in paths]
    return sorted(entries, key=lambda entry: (-entry.bytes, entry.path))


def remove_entry(entry: CacheEntry) -> bool:
    """Removes an entry and returns True; False if another process is writing it. Open files stay readable."""
    try:
        with FileLock(_lock_path(entry.path), blocking=False):
            _remove(entry.path)
    except Timeout:
        return False
    return True


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _remove(path: Path) -> None:
    if path.is_dir():
        # The folder is renamed first, so that a reader finds it complete or not at all.
        trash = path.with_name(f".{path.name}.gone.partial")
        shutil.rmtree(trash, ignore_errors=True)
        path.rename(trash)
        shutil.rmtree(trash)
    else:
        path.unlink(missing_ok=True)


def _describe(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        description = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        return f"{description['extractor']} of {description['data']}"
    return ""


def _total_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
