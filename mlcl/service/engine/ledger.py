"""The ledger of a sweep: what happened, in order, in one file from which everybody is told the same.

An event is one line of JSON, appended whole and synced before Optuna or MLflow hear of it. Whatever is
killed, the next command reads the ledger and tells the others again; a line that was torn never happened.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.errors import UserError
from mlcl.tracking import State

LEDGER = "ledger.jsonl"


@dataclass
class Entry:
    """One training: a search trial (`number`), or one seed of a confirmation (`group`).

    `study_number` is the trial's number in the Optuna study of its `generation`; `rungs` are its validations
    as (epoch, score); seconds, CPU- and GPU-seconds are over all sessions.
    """

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]
    generation: int = 0
    number: int | None = None
    study_number: int | None = None
    group: str | None = None
    state: State = State.RUNNING
    rungs: list[tuple[int, float]] = field(default_factory=list)
    score: float | None = None
    values: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    began: float | None = None
    cpus: float = 0.0
    gpus: float = 0.0
    seen: float = 0.0

    @property
    def resumable(self) -> bool:
        """Whether a later command goes on with it."""
        return self.state in (State.RUNNING, State.STOPPED, State.BUDGET)

    @property
    def ended(self) -> bool:
        """Whether it is settled for good."""
        return not self.resumable


@dataclass(frozen=True)
class Group:
    """A setting that is confirmed on fresh seeds."""

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class SpaceVersion:
    """A space that the sweep has searched, with its study.

    `kept` maps earlier trials (their keys) that fit the space to their numbers in its study; `dropped` says
    why the others do not; `warm` names the other sweeps whose trials were asked for.
    """

    number: int
    space_hash: str
    space: str
    study: str
    names: tuple[str, ...]
    kept: Mapping[str, int]
    dropped: Mapping[str, str]
    warm: tuple[str, ...] = ()


class Ledger:
    """The events of one sweep's folder, and what they add up to.

    Only the process that holds the folder's lock appends; anybody may read. Raises UserError where the file
    is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER
        self.head: dict[str, Any] = {}
        self.generations: list[SpaceVersion] = []
        self.entries: dict[str, Entry] = {}
        self.groups: dict[str, Group] = {}
        self.group_states: dict[str, tuple[State, str]] = {}
        """Of the groups that have ended, or were interrupted."""
        self.order: list[tuple[str, str, int]] = []
        """(event, key, epoch) of every rung and close, as they came: what a pruner is replayed from."""
        self.registered: dict[str, str] = {}
        self.clock_seconds = 0.0
        self.state = State.RUNNING
        self._session: tuple[float, float] | None = None
        self._lines = 0
        for number, line in enumerate(self._lines_on_disk(), start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(
                    "the ledger of a sweep is damaged",
                    file=self.path,
                    key=f"line {number}",
                    found=f"{type(error).__name__}: {error}",
                    allowed="a copy of the file, or the sweep anew with --fresh",
                ) from None

    def _lines_on_disk(self) -> list[bytes]:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return raw[: raw.rfind(b"\n") + 1].splitlines()

    def append(self, event: str, **content: Any) -> None:
        """Writes an event down for good, then counts it."""
        entry = {"event": event, "at": time.time(), **content}
        line = json.dumps(entry, default=str).encode() + b"\n"
        if self._lines == 0:
            self._cut_torn_line()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) < len(line):
                os.ftruncate(descriptor, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._lines += 1
        self._apply(json.loads(line))

    def _cut_torn_line(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            return
        raw = self.path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.truncate(self.path, whole)

    def _apply(self, event: dict[str, Any]) -> None:
        self._count_time(event)
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _count_time(self, event: dict[str, Any]) -> None:
        """A session's clock runs from its first event to its last: what lies between sessions is nobody's."""
        at = float(event["at"])
        if event["event"] == "session":
            self._session = (at, self.clock_seconds)
        elif event["event"] == "killed":
            self._session = None
        if self._session is not None:
            began, before = self._session
            self.clock_seconds = max(self.clock_seconds, before + at - began)

    def _on_sweep(self, event: dict[str, Any]) -> None:
        self.head = event

    def _on_session(self, event: dict[str, Any]) -> None:
        self.state = State.RUNNING
        self._on_killed(event)

    def _on_killed(self, _event: dict[str, Any]) -> None:
        """What still ran ended when it was last heard of."""
        for entry in self.entries.values():
            self._stop_clock(entry, entry.seen)

    def _on_beat(self, event: dict[str, Any]) -> None:
        """A sign of life, so that little of what a killed command has spent is forgotten."""
        for entry in self.entries.values():
            if entry.began is not None:
                entry.seen = float(event["at"])

    def _on_generation(self, event: dict[str, Any]) -> None:
        names = ("number", "space_hash", "space", "study", "kept", "dropped")
        fields: dict[str, Any] = {name: event[name] for name in names}
        fields |= {name: tuple(event[name]) for name in ("names", "warm")}
        self.generations.append(SpaceVersion(**fields))

    def _on_open(self, event: dict[str, Any]) -> None:
        names = ("key", "label", "job", "settings", "generation", "number", "study_number", "group")
        self.entries[event["key"]] = Entry(**{name: event[name] for name in names})
        self.group_states.pop(event["group"], None)  # it has one seed more to wait for

    def _on_group(self, event: dict[str, Any]) -> None:
        self.groups[event["key"]] = Group(**{n: event[n] for n in ("key", "label", "job", "settings")})

    def _on_begin(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        self._stop_clock(entry, float(event["at"]))
        entry.state, entry.reason = State.RUNNING, ""
        if entry.group is not None:
            self.group_states.pop(entry.group, None)
        entry.began = entry.seen = float(event["at"])
        entry.cpus, entry.gpus = float(event["cpus"]), float(event["gpus"])

    def _on_rung(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.rungs.append((int(event["epoch"]), float(event["score"])))
        entry.seen = float(event["at"])
        self.order.append(("rung", entry.key, int(event["epoch"])))

    def _on_close(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        self._stop_clock(entry, float(event["at"]))
        entry.state, entry.reason = State(event["state"]), event["reason"]
        entry.score = None if event["score"] is None else float(event["score"])
        entry.values = [float(value) for value in event["values"]]
        entry.metrics = {name: float(value) for name, value in event["metrics"].items()}
        entry.chosen = event["chosen"]
        if entry.ended:
            self.order.append(("close", entry.key, 0))

    def _on_close_group(self, event: dict[str, Any]) -> None:
        self.group_states[event["key"]] = (State(event["state"]), event["reason"])

    def _on_registered(self, event: dict[str, Any]) -> None:
        self.registered[event["key"]] = event["text"]

    def _on_end(self, event: dict[str, Any]) -> None:
        self.state = State(event["state"])

    @staticmethod
    def _stop_clock(entry: Entry, at: float) -> None:
        """Ends a stretch of training. A killed command's ends with the last that was heard of it."""
        if entry.began is None:
            return
        seconds = max(0.0, at - entry.began)
        entry.seconds += seconds
        entry.cpu_seconds += seconds * entry.cpus
        entry.gpu_seconds += seconds * entry.gpus
        entry.began = None

    def trials(self, generation: int | None = None) -> list[Entry]:
        """The search trials in order, of one generation or of all."""
        return [
            entry
            for entry in self.entries.values()
            if entry.number is not None and generation in (None, entry.generation)
        ]

    def counted(self) -> list[Entry]:
        """The search trials that compare in the present space: its own, and earlier ones that fit it."""
        if not self.generations:
            return []
        present = self.generations[-1]
        return [e for e in self.trials() if e.generation == present.number or e.key in present.kept]

    def seeds_of(self, group: str) -> list[Entry]:
        """The confirmation trainings of a group."""
        return [entry for entry in self.entries.values() if entry.group == group]

    def spent(self, unit: str) -> float:
        """Seconds of the clock, or CPU- or GPU-seconds, of all sessions so far."""
        if unit == "clock":
            return self.clock_seconds
        name = "cpu_seconds" if unit == "cpu" else "gpu_seconds"
        return math.fsum(getattr(entry, name) for entry in self.entries.values())
