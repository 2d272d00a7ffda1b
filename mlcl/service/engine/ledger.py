"""The ledger of a sweep or a table: an append-only file of events, and the state that they add up to.

An event is one line of JSON with a checksum, written whole and synced before Optuna or MLflow are told. After
a kill the next command reads the ledger and tells them again; an incomplete last line is ignored and
overwritten.
"""

from __future__ import annotations

import errno
import math
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlcl.errors import UserError
from mlcl.service.engine.entries import End, Entry, Group, SpaceVersion, Training
from mlcl.service.engine.ledger_lines import Chain, whole_lines
from mlcl.service.runs.run_record import RunRecord
from mlcl.service.runs.run_store import LEDGER as LEDGER
from mlcl.service.runs.run_store import RunFolder
from mlcl.tracking import State

FORMAT = 3
"""The version of the lines that this release writes. 1, which names none, is release 0.1; 3 has checksums."""
FORMAT_KEY = "format"
HEADS = ("sweep", "table")
"""The events that begin a ledger. They have the id, the name, and what all of its commands must agree in."""
ANEW = {
    "sweep": "the sweep anew with --fresh",
    "table": "the table anew with its folder moved away: its finished runs are kept",
}
"""How to go on without a ledger."""
_BOOT = time.time() - time.monotonic()


def now() -> float:
    """The time in seconds; a clock that is set while the process runs does not move it."""
    return _BOOT + time.monotonic()


class Ledger:
    """The events in one folder, and what they add up to.

    Only the process that holds the folder's lock appends; anybody may read. Raises UserError where the file
    is damaged, ends before what the folder's record knows of it, or was written by a later release.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER
        self.head: dict[str, Any] = {}
        self.entries: dict[str, Entry] = {}
        self.groups: dict[str, Group] = {}
        self.group_states: dict[str, tuple[State, str]] = {}
        """State and reason of the groups that have ended, or were interrupted."""
        self.history: list[tuple[str, str, int]] = []
        """(event, key, epoch) of every rung and close, as they came: what a pruner is replayed from."""
        self.registered: dict[str, str] = {}
        self.codes: list[str] = []
        """The code of each command, without repetitions; releases without checksums did not write it down."""
        self.clock_seconds = 0.0
        self.state = State.RUNNING
        self._versions: dict[str, list[SpaceVersion]] = {}
        self._session: tuple[float, float] | None = None
        self._chain = Chain()
        self._appended = False
        self._read()

    def _read(self) -> None:
        number, record = 1, RunFolder(self.path.parent).record
        raw = self.path.read_bytes() if self.path.exists() else b""
        try:
            number = raw.count(b"\n") + 1
            for number, line in enumerate(whole_lines(raw), start=1):  # noqa: B007 (the line that is named)
                self._apply(self._chain.read(line))
            number += 1
            self._compare(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            kind = "table" if self.path.parent.parent.name == "tables" else "sweep"
            raise UserError(
                f"the ledger of a {kind} is damaged",
                file=self.path,
                key=f"line {number}",
                found=str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}",
                allowed=f"`mlcl doctor --fix`, a copy of the file, or {ANEW[kind]}",
            ) from None

    def _compare(self, record: RunRecord | None) -> None:
        """Raises ValueError where the folder's record knows of lines that the file has lost."""
        if record is None or record != RunFolder(self.path.parent).record:
            return  # a command has begun or ended meanwhile
        if record.ledger and record.ledger not in self._chain.known:
            raise ValueError("the file ends here, and run.json knows of later lines")
        if self.head and record.state is State.COMPLETE and self.state is State.RUNNING:
            raise ValueError("the file ends here, and run.json says COMPLETE")

    @property
    def last(self) -> str:
        """The checksum of the last line and all before it: a folder's record keeps it when a command ends."""
        return self._chain.sum

    def append(self, event: str, **content: Any) -> None:
        """Writes an event to the disk, then applies it. Raises OSError where the disk is full."""
        line = self._chain.seal({"event": event, "at": now(), **content})
        if not self._appended:
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
        self._appended = True
        self._apply(self._chain.read(line[:-1]))

    def open(self, training: Training) -> Entry:
        """Writes down a new training, which runs from now on."""
        content = _unscoped(training)
        content["generation"] = content.pop("version")
        self.append("open", **content)
        return self.entries[training.key]

    def open_group(self, group: Group) -> None:
        """Writes down a setting that is to be confirmed, or what it is now."""
        self.append("group", **_unscoped(group))

    def open_version(self, version: SpaceVersion, scope: str = "") -> None:
        """Writes down a new space of a search."""
        self.append("generation", **asdict(version), **({"scope": scope} if scope else {}))

    def close(self, key: str, end: End) -> None:
        """Writes the end of a training."""
        self.append("close", key=key, **asdict(end))

    def _cut_torn_line(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)

    def _apply(self, event: dict[str, Any]) -> None:
        self._count_time(event)
        if event["event"] in HEADS:
            self._begin(event)
            return
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is None:
            raise ValueError(f"unknown event {event['event']}")
        handler(event)

    def _begin(self, event: dict[str, Any]) -> None:
        found = event.get("format", 1)
        if found > FORMAT:
            raise UserError(
                f"this {event['event']} was written by a later mlcl",
                file=self.path,
                key=FORMAT_KEY,
                found=found,
                allowed=f"{FORMAT} or less: install the mlcl that wrote it, or give another --home",
            )
        self.head = event

    def _count_time(self, event: dict[str, Any]) -> None:
        """A session's clock runs from its first event to its last; idle time is not counted."""
        at = float(event["at"])
        if event["event"] == "session":
            self._session = (at, self.clock_seconds)
        elif event["event"] == "killed":
            self._session = None
        if self._session is not None:
            began, before = self._session
            self.clock_seconds = max(self.clock_seconds, before + at - began)

    def _on_session(self, event: dict[str, Any]) -> None:
        self.state = State.RUNNING
        its = event.get("code", "")
        if its and its not in self.codes[-1:]:
            self.codes.append(its)
        self._on_killed(event)

    def _on_killed(self, _event: dict[str, Any]) -> None:
        """Trainings that ran are counted up to the time at which they were last heard of."""
        for entry in self.entries.values():
            entry.cost.end(entry.cost.seen)

    def _on_beat(self, event: dict[str, Any]) -> None:
        """A sign of life: after a kill only the time since the last one is not counted."""
        for entry in self.entries.values():
            if entry.cost.began is not None:
                entry.cost.seen = float(event["at"])

    def _on_generation(self, event: dict[str, Any]) -> None:
        names = ("number", "space_hash", "space", "study", "kept", "dropped")
        fields: dict[str, Any] = {name: event[name] for name in names}
        fields |= {name: tuple(event[name]) for name in ("names", "warm")}
        self._versions.setdefault(event.get("scope", ""), []).append(SpaceVersion(**fields))

    def _on_open(self, event: dict[str, Any]) -> None:
        names = ("key", "label", "job", "settings", "number", "study_number", "group")
        fields: dict[str, Any] = {name: event[name] for name in names}
        entry = Entry(**fields, version=event["generation"], scope=event.get("scope", ""))
        before = self.entries.get(entry.key)
        if before is not None:  # gone on with by this table after another command ended it
            entry.cost = before.cost
        self.entries[entry.key] = entry
        self.group_states.pop(event["group"], None)  # it has one seed more to wait for

    def _on_group(self, event: dict[str, Any]) -> None:
        names = ("key", "label", "job", "settings")
        fields: dict[str, Any] = {name: event[name] for name in names}
        fields |= {"candidate": event.get("candidate", ""), "roles": tuple(event.get("roles", ()))}
        group = Group(**fields, scope=event.get("scope", ""))
        self.groups[group.key] = group

    def _on_begin(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.cost.begin(float(event["at"]), float(event["cpus"]), float(event["gpus"]))
        entry.state, entry.reason = State.RUNNING, ""
        if entry.group is not None:
            self.group_states.pop(entry.group, None)

    def _on_rung(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.rungs.append((int(event["epoch"]), float(event["score"])))
        entry.cost.seen = float(event["at"])
        self.history.append(("rung", entry.key, int(event["epoch"])))

    def _on_close(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.cost.end(float(event["at"]))
        entry.state, entry.reason = State(event["state"]), event["reason"]
        entry.score = None if event["score"] is None else float(event["score"])
        entry.values = [float(value) for value in event["values"]]
        entry.metrics = {name: float(value) for name, value in event["metrics"].items()}
        entry.chosen = event["chosen"]
        if entry.ended:
            self.history.append(("close", entry.key, 0))

    def _on_close_group(self, event: dict[str, Any]) -> None:
        self.group_states[event["key"]] = (State(event["state"]), event["reason"])

    def _on_registered(self, event: dict[str, Any]) -> None:
        self.registered[event["key"]] = event["text"]

    def _on_end(self, event: dict[str, Any]) -> None:
        self.state = State(event["state"])

    @property
    def searches(self) -> list[str]:
        """The scopes of the searches: one, empty, of a sweep; one for each tuned cell of a table."""
        return list(self._versions)

    def versions(self, scope: str = "") -> list[SpaceVersion]:
        """The spaces that a search has had, the present one last."""
        return self._versions.get(scope, [])

    def trials(self, version: int | None = None, scope: str = "") -> list[Entry]:
        """The trials of a search in order, of one space version or of all."""
        return [
            entry
            for entry in self.entries.values()
            if entry.number is not None and entry.scope == scope and version in (None, entry.version)
        ]

    def counted(self, scope: str = "") -> list[Entry]:
        """The trials that compare in the present space: its own, and earlier ones that fit it."""
        versions = self.versions(scope)
        if not versions:
            return []
        present = versions[-1]
        return [e for e in self.trials(scope=scope) if e.version == present.number or e.key in present.kept]

    def seeds_of(self, group: str) -> list[Entry]:
        """The confirmation trainings of a group."""
        return [entry for entry in self.entries.values() if entry.group == group]

    def spent(self, unit: str) -> float:
        """Seconds of the clock, or CPU- or GPU-seconds, of all sessions so far."""
        if unit == "clock":
            return self.clock_seconds
        name = "cpu_seconds" if unit == "cpu" else "gpu_seconds"
        return math.fsum(getattr(entry.cost, name) for entry in self.entries.values())


def _unscoped(opened: Training | Group) -> dict[str, Any]:
    """The fields of an event; the scope only where there is one, as in release 0.1."""
    content = asdict(opened)
    if not opened.scope:
        del content["scope"]
    return content
