"""The lines of a ledger. Each ends with a checksum over itself and all lines before it.

    sum of a line = first 16 hexadecimal digits of SHA-256(sum of the line before + the line without its sum)

Any changed, missing or moved line contradicts its own sum or that of the next line. Lines of format 1 and 2
have no sum; the first line that has one also covers them, and no line without one may follow.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_SUM = re.compile(rb', "sum": "([0-9a-f]{16})"\}')


class Chain:
    """The checksum of the last line that was read or written, and of all before it."""

    def __init__(self) -> None:
        self.sum = ""
        self.known: set[str] = set()
        """The sums of all lines so far."""
        self.sealed = False
        """Whether the last line had one of its own."""

    def read(self, line: bytes) -> dict[str, Any]:
        """The event of the next line, without its newline. Raises ValueError for a damaged one."""
        found = _SUM.search(line, len(line) - 28)
        if found is None and self.sealed:
            raise ValueError("it has no checksum")
        body = line if found is None else line[: found.start()] + b"}"
        its = digest(self.sum, body)
        if found is not None and found[1].decode() != its:
            raise ValueError("its checksum is wrong: it was changed, or a line before it is missing")
        event = json.loads(body)
        if not isinstance(event, dict):
            raise ValueError("it is no event")
        self.sum, self.sealed = its, found is not None
        self.known.add(its)
        return event

    def pass_by(self, line: bytes) -> None:
        """Goes on behind a damaged line as if its sum were right."""
        found = _SUM.search(line)
        if found is not None:
            self.sum, self.sealed = found[1].decode(), True

    def seal(self, event: Mapping[str, Any]) -> bytes:
        """The next line of an event, with its newline. It counts once it has been read."""
        body = json.dumps(event, default=str).encode()
        return body[:-1] + f', "sum": "{digest(self.sum, body)}"}}\n'.encode()


def digest(before: str, body: bytes) -> str:
    """The sum of a line behind one with the sum `before`."""
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]


def whole_lines(raw: bytes) -> list[bytes]:
    """The lines of a file. What its writer was killed in the middle of is no line.

    Raises ValueError where a last line is whole but for its newline.
    """
    *lines, rest = raw.split(b"\n")
    found = _SUM.search(rest)
    if found is not None and found.end() < len(rest):
        raise ValueError("its end was changed")
    return lines
