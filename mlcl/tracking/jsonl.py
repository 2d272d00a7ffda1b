"""Reads and appends to files of JSON lines, which stay readable after a writer was killed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yields the complete lines of a file, if there is one, from byte `offset` on, and their ends."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                yield line, offset
    except FileNotFoundError:
        return


def decode(line: bytes) -> dict[str, Any]:
    """Returns the JSON object of a line; an empty dict for a damaged line, as after a crash."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def first_entry(path: Path) -> dict[str, Any]:
    """Returns the JSON object of the first line; an empty dict where there is none."""
    return next((decode(line) for line, _ in read_lines(path)), {})


def append(path: Path, entries: Iterable[Entry]) -> None:
    """Appends the entries after removing a partial last line; complete lines before an OSError stay."""
    lines = b"".join(
        json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n" for entry in entries
    )
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # Workers of a lost node may live on for a while, and write.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Waits until the file's content is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
