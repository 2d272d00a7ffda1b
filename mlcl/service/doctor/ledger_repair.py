"""Repairs a damaged ledger: a flipped bit by the checksum, other damage from logs, studies and results."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.doctor.known_trainings import Known
from mlcl.service.engine.ledger import HEADS, Ledger
from mlcl.service.engine.ledger_lines import Chain
from mlcl.service.runs.run_store import RunFolder
from mlcl.tracking import State

KEPT = ("session", "beat", "killed", "begin", "end", "close_group", "registered")
"""Events without figures: as they are in a damaged line, if they can be read. The others are written anew."""
SETTLED = (State.COMPLETE, State.PRUNED, State.FAILED)
"""States in which a training has ended for good."""
DAMAGED = "ledger.damaged.jsonl"
"""The damaged file, kept beside the repaired one."""

Event = dict[str, Any]


class Repair:
    """The events of a damaged ledger, without what cannot be believed, and where that began.

    `bad` has the damaged lines as (number, text); `doubted`, as (number, event), those about a space, which
    are among the events and must be confirmed. Raises UserError where a line is lost that no other store has.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.events, self.bad = path, list[Event](), list[tuple[int, bytes]]()
        self.doubted: list[tuple[int, Event]] = []
        self.place: int | None = None
        """Where in the events something may be missing; None where nothing is."""
        self._chain = Chain()
        lines, number = [line for line in path.read_bytes().split(b"\n") if line], 0
        while number < len(lines):
            number += self._take(number, lines)
        self.events = [{name: its for name, its in e.items() if name != "sum"} for e in self.events]
        if not self.events or self.events[0]["event"] not in HEADS:
            raise self.nowhere(1, "no sweep and no table")

    def _take(self, number: int, lines: list[bytes]) -> int:
        """Reads the next line, or the two that a flipped bit has made of one; how many these were."""
        try:
            self.events.append(self._chain.read(lines[number]))
            return 1
        except ValueError:
            self.bad.append((number + 1, lines[number]))
        for count in (1, 2):
            found = _without_a_flip(self._chain, b"\n".join(lines[number : number + count]))
            if found is not None:
                self._chain, events = found
                self.events += events
                return count
        self.place = len(self.events) if self.place is None else self.place
        self._chain.pass_by(lines[number])
        event = _parsed(lines[number])
        if event.get("event") in KEPT:
            self.events.append(event)
        elif event.get("event") == "generation":
            self.events.append(event)
            self.doubted.append((number + 1, event))
        elif event.get("event") in HEADS:
            raise self.nowhere(number + 1, event["event"])
        return 1

    def nowhere(self, number: int, found: str) -> UserError:
        """The error for a line that cannot be repaired."""
        return UserError(
            "no other store has what this line says", file=self.path, key=f"line {number}", found=found
        )

    def lost(self, known: Mapping[str, Known]) -> list[Event]:
        """The events that only `known` has.

        Raises OSError, KeyError and ValueError where what is lost is not known either.
        """
        if self.bad and self.place is None:
            return []
        before, after = self.events[: self._place], self.events[self._place :]
        return [{**event, "at": before[-1]["at"]} for event in _lost(before, after, known)]

    def complete(self, lost: list[Event]) -> list[Event]:
        """All events: the lost ones stand where the damage began, or else at the end."""
        return [*self.events[: self._place], *lost, *self.events[self._place :]]

    def missing(self, lost: list[Event], known: Mapping[str, Known]) -> list[str]:
        """The keys of the trainings that the file lacks something of: trials, settings, then their seeds.

        A damaged line that says what the other stores say was not changed: another one before it is missing.
        """
        there = [_content(_parsed(line)) for _, line in self.bad]
        keys = {event["key"] for event in lost if _content(event) not in there}
        return [key for key, _ in sorted(known.items(), key=_rank) if key in keys]

    @property
    def _place(self) -> int:
        return len(self.events) if self.place is None else self.place


def _lost(before: list[Event], after: list[Event], known: Mapping[str, Known]) -> Iterator[Event]:
    """What is known of trainings and not in the events."""
    events = [*before, *after]
    opened = {e["key"]: e for e in events if e["event"] in ("open", "group")}
    generations = {e.get("scope", ""): e["number"] for e in before if e["event"] == "generation"}
    for key, its in sorted(known.items(), key=_rank):
        if key not in opened:
            opened[key] = its.opened(key, generations.get(its.scope, 0))
            if its.trial is None:  # the settings of a confirmed trial are that trial's
                name = known[its.parent].name if its.parent in known else its.name
                same = (e for e in opened.values() if key == e.get("group") or name == e["label"])
                opened[key]["settings"] = next(same, {"settings": {}})["settings"]
            yield opened[key]
    later = {e["key"] for e in after if e["event"] == "open"}
    for key, its in known.items():
        if key in later or its.is_group:
            continue
        there = {e["epoch"] for e in events if e["event"] == "rung" and e["key"] == key}
        for epoch, score in its.rungs(opened[key]["job"]):
            if epoch not in there:
                yield {"event": "rung", "key": key, "epoch": epoch, "score": score}
        closes = [e["state"] for e in events if e["event"] == "close" and e["key"] == key]
        if its.state in SETTLED and its.state not in closes:
            yield its.closed(key, opened[key]["job"], before[0])
    closed = {e["key"] for e in events if e["event"] == "close_group"}
    for key, its in known.items():
        if its.is_group and key not in closed and its.state is not State.RUNNING:
            yield {"event": "close_group", "key": key, "state": its.state, "reason": its.reason}


def _rank(known: tuple[str, Known]) -> int:
    """Trials, then confirmed settings, then their seeds."""
    return 0 if known[1].trial is not None else 1 if known[1].is_group else 2


def rewrite(repair: Repair, events: list[Event]) -> None:
    """Replaces the ledger by these events and keeps the damaged one beside it. The caller holds the folder.

    Raises UserError where they make no ledger.
    """
    path, folder, chain, text = repair.path, RunFolder(repair.path.parent), Chain(), b""
    for event in events:
        line = chain.seal(event)
        chain.read(line[:-1])
        text += line
    damaged, record = path.read_bytes(), folder.record
    replace_text(path.with_name(DAMAGED), damaged.decode(errors="surrogateescape"))
    replace_text(path, text.decode())
    if record is None:
        return
    try:
        folder.set_state(State.RUNNING, "")  # what is still open is closed as that of a killed command
        ledger = Ledger(path.parent)
        open_still = any(entry.state is State.RUNNING for entry in ledger.entries.values())
        if record.state is not State.RUNNING and not open_still:
            if ledger.state is not record.state:
                ledger.append("end", state=record.state, reason="")
            folder.set_state(record.state, ledger.last)
    except UserError:
        replace_text(path, damaged.decode(errors="surrogateescape"))
        folder.write(record)
        raise


def _without_a_flip(chain: Chain, text: bytes) -> tuple[Chain, list[Event]] | None:
    """The events of a text of which one bit was flipped, by its checksum; None where that is not all."""
    for place in range(8 * len(text)):
        changed, its = bytearray(text), copy.copy(chain)
        changed[place // 8] ^= 1 << place % 8
        try:
            events = [its.read(line) for line in bytes(changed).split(b"\n") if line]
        except ValueError:
            continue
        if its.sealed:
            return its, events
    return None


def _content(event: Event) -> Event:
    """What an event says, as a line has it."""
    said: Event = json.loads(json.dumps(event, default=str))
    return {name: its for name, its in said.items() if name not in ("at", "sum")}


def _parsed(line: bytes) -> Event:
    """The event of a line, whatever its checksum; empty where it cannot be read."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
