"""The cache of a home: what is in it, how large it is, and its removal.

Everything in `cache/KIND/` is computed again when it is asked for.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

ABOUT = "about.json"
"""What an entry may say of itself."""


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder of the cache: its kind, what it says of itself, and its size on disk."""

    path: Path
    kind: str
    about: str
    bytes: int


def cache_entries(home: Path) -> list[CacheEntry]:
    """All entries, the largest first."""
    places = [path for path in (home / "cache").glob("*/*") if not path.name.startswith(".")]
    entries = [CacheEntry(path, path.parent.name, _about(path), _size(path)) for path in places]
    return sorted(entries, key=lambda entry: (-entry.bytes, entry.path))


def remove_entry(entry: CacheEntry) -> bool:
    """Removes an entry; returns False where another process is writing it. Its open readers lose nothing."""
    lock = entry.path.with_name(f".{entry.path.name}.lock")
    if not lock.exists():
        _remove(entry.path)
        return True
    try:
        with FileLock(lock, blocking=False):
            _remove(entry.path)
    except Timeout:
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        # Out of its final name first: a reader finds it whole or not at all.
        gone = path.with_name(f".{path.name}.partial-gone")
        path.rename(gone)
        shutil.rmtree(gone)
    else:
        path.unlink(missing_ok=True)


def _about(path: Path) -> str:
    with suppress(OSError, ValueError):
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        return f"{about['extractor']} of {about['data']}"
    return ""


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
