"""Files of JSON lines that several processes append to, and that stay readable after a kill."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Entry = Mapping[str, Any]


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Whole lines from `offset` (bytes), each with the offset behind it. A truncated last line is skipped."""
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
    """The entry of a line; empty for a line that a crash of the machine has damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def first_entry(path: Path) -> dict[str, Any]:
    """The entry of the first line; empty where there is none."""
    return next((decode(line) for line, _ in read_lines(path)), {})


class Appender:
    """An open file that this process has locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def append(self, entries: Iterable[Entry], end: int) -> bytes:
        """Cuts off what is behind `end`, a truncated line, then appends. Returns the lines.

        Raises OSError where they cannot be written. Lines that were written whole stay: they may be read.
        """
        lines = b"".join(_encode(entry) for entry in entries)
        if os.fstat(self._descriptor).st_size > end:
            os.ftruncate(self._descriptor, end)
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return lines


@contextmanager
def appending(path: Path) -> Iterator[Appender]:
    """Opens and locks the file while the context is open."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Appender(descriptor)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Waits until the file's content is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _encode(entry: Entry) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
