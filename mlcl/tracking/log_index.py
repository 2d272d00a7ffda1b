"""The content of a log that decides what is new, read from its file once and then as the file grows."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcl.store import State
from mlcl.tracking.jsonl import decode, read_lines

METRICS = b'{"kind":"metrics"'
"""Begins a line with metrics. Most lines do, and only `new_points` needs to decode them."""


class LogIndex:
    """The first entry, the state, and the names of points, parameters and texts up to `offset` (bytes)."""

    def __init__(self, path: Path) -> None:
        self.offset = 0
        self.start: dict[str, Any] = {}
        self.state = State.RUNNING
        self.reason = ""
        self.params: set[str] = set()
        self.texts: dict[str, str] = {}
        self._path = path
        self._unread: list[bytes] = []
        self._steps: dict[str, array[int]] = {}

    def update(self) -> None:
        """Reads what was appended, by any process."""
        for line, end in read_lines(self._path, self.offset):
            self._decode(line)
            self.offset = end

    def add_own(self, lines: bytes) -> None:
        """Adds lines that this process has just appended."""
        for line in lines.splitlines(keepends=True):
            if not line.startswith(METRICS):  # `new_points` has added them
                self._decode(line)
        self.offset += len(lines)

    def new_points(self, values: Mapping[str, float], step: int) -> dict[str, float]:
        """Adds points at `step` and returns those that were not in the log."""
        self._read_points()
        return {name: value for name, value in values.items() if self._add(name, step)}

    def curves(self) -> set[str]:
        """The metrics with a point behind step 0."""
        self._read_points()
        return {name for name, steps in self._steps.items() if steps[-1] > 0}

    def _read_points(self) -> None:
        for line in self._unread:
            entry = decode(line)
            for name in entry.get("values", {}):
                self._add(name, int(entry["step"]))
        self._unread.clear()

    def _add(self, name: str, step: int) -> bool:
        steps = self._steps.setdefault(name, array("q"))
        if not steps or steps[-1] < step:
            steps.append(step)
            return True
        place = bisect_left(steps, step)
        if steps[place] == step:
            return False
        steps.insert(place, step)
        return True

    def _decode(self, line: bytes) -> None:
        if line.startswith(METRICS):
            self._unread.append(line)
            return
        entry = decode(line)
        match entry.get("kind"):
            case "start":
                self.start = entry
                self.params |= entry["params"].keys()
                self.texts |= entry["texts"]
            case "params":
                self.params |= entry["values"].keys()
            case "text":
                self.texts[entry["name"]] = entry["file"]
            case "reopen":
                self.state, self.reason = State.RUNNING, ""
            case "finish":
                self.state, self.reason = State(entry["state"]), entry["reason"]
