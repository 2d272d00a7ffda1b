"""The ledger of a sweep or a table: its events in the home's database, and the state that they add up to.

An event is written to disk before the log or the pruner sees it. After a kill the next command reads the
ledger and brings log and pruner to its state.
"""

from __future__ import annotations

import json
import math
import operator
import time
from bisect import insort
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mlcl.results.sweep_result import is_ranked, rank_key, rank_trials
from mlcl.service.engine.entries import Confirmation, End, Entry, SearchStop, SpaceVersion, Training, Unit
from mlcl.store import Database, RunFolder, State, read_event
from mlcl.tracking.names import Tag


def share(tree: Any, template: Any) -> Any:
    """Returns a tree equal to `tree` that reuses the objects of `template` for equal parts at the same path.

    Both are JSON trees, and neither may be changed afterwards. Parts are equal if `json.dumps` writes the
    same text for them: 1, 1.0 and True are three values, and the order of keys counts.

    Example:
        >>> first, second = {"data": {"n": 1}, "lr": 0.1}, {"data": {"n": 1}, "lr": 0.2}
        >>> shared = share(second, first)
        >>> shared == second, shared["data"] is first["data"]
        (True, True)
    """
    if type(tree) is not type(template):
        return tree
    if isinstance(tree, dict):
        tree = {key: share(value, template.get(key)) for key, value in tree.items()}
        same = list(tree) == list(template) and all(tree[key] is template[key] for key in tree)
    elif isinstance(tree, list):
        tree = [share(value, other) for value, other in zip_longest(tree, template[: len(tree)])]
        same = len(tree) == len(template) and all(map(operator.is_, tree, template))
    else:
        same = repr(tree) == repr(template)
    return template if same else tree


VERSION = TypeAdapter(SpaceVersion)
HEADS = ("sweep", "table")
"""The kinds of a ledger's first event, which has id, name, and values that all commands must share."""
_BOOT = time.time() - time.monotonic()


def now() -> float:
    """Returns the time in seconds since 1970; changes of the system clock during the process are ignored."""
    return _BOOT + time.monotonic()


class Ledger:
    """The events of the sweep or table in one folder, and the state that they add up to.

    Only the process that holds the folder's lock may append events; any process may read them. The
    constructor reads all events. Raises UserError if the home's database is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.head: dict[str, Any] = {}
        self.entries: dict[str, Entry] = {}
        self.confirmations: dict[str, Confirmation] = {}
        self.confirmation_states: dict[str, tuple[State, str]] = {}
        """State and reason of the confirmations that have ended or were interrupted, by key."""
        self.history: list[tuple[str, str, int]] = []
        """(event, key, epoch) of all intermediate values and ends, in order; a pruner is rebuilt from it."""
        self.stops: dict[str, SearchStop] = {}
        """The latest early end of each search, by scope."""
        self.registered: dict[str, str] = {}
        self.registered_runs: set[str] = set()
        """The ids of the MLflow runs whose model was registered as a model version."""
        self.codes: list[str] = []
        """The code version of each command, without consecutive repetitions."""
        self.clock_seconds = 0.0
        self.state = State.RUNNING
        self._last_jobs: dict[str, Any] = {}
        """The last job of each scope, whose parts the next job of the scope reuses, see `share`."""
        self._versions: dict[str, list[SpaceVersion]] = {}
        self._trial_keys: dict[tuple[str, int | None], list[str]] = {}
        """The keys of the trials by search and version; the version None has the trials of all versions."""
        self._open_keys: dict[tuple[str, int | None], set[str]] = {}
        """The keys of the trials in `_trial_keys` that have not ended."""
        self._ranks: dict[tuple[str, str], list[Entry]] = {}
        """The ranked trials by search and mode, once `ranked_trials` has computed them."""
        self.running: dict[str, Entry] = {}
        """The trainings that run, by their keys."""
        self._session: tuple[float, float] | None = None
        self._database, self._run_number, self._last_digest = Database(RunFolder(folder).home), 0, ""
        record = RunFolder(folder).record
        if record is not None:
            self._run_number = record.number
            for event, digest in self._database.events(record.number):
                self._last_digest = digest
                self._apply(event)

    def append(self, event: str, **content: Any) -> None:
        """Writes an event to the disk, then applies it to the state. The folder must have a record."""
        if self._run_number == 0:
            self._run_number = RunFolder(self.folder).written_record.number
        text = json.dumps({"event": event, "at": now(), **content}, default=str)
        with self._database.transaction() as write:
            digest = write.add_event(self._run_number, text, last_digest=self._last_digest)
        self._last_digest = digest
        self._apply(read_event(text))

    def open(self, training: Training) -> Entry:
        """Writes a new training, whose state is RUNNING, and returns its entry."""
        self.append("open", **_dump_item(training))
        return self.entries[training.key]

    def open_confirmation(self, confirmation: Confirmation) -> None:
        """Writes a setting that is to be confirmed, or the new labels and roles of a known setting."""
        self.append("confirmation", **_dump_item(confirmation))

    def open_version(self, version: SpaceVersion, scope: str = "") -> None:
        """Writes a new version of the search space of the search `scope`."""
        self.append("version", **asdict(version), **({"scope": scope} if scope else {}))

    def close(self, key: str, end: End) -> None:
        """Writes the end of a training."""
        self.append("close", key=key, **asdict(end))

    def _apply(self, event: dict[str, Any]) -> None:
        self._count_time(event)
        if event["event"] in HEADS:
            self.head = event
            return
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is None:
            raise ValueError(f"unknown event {event['event']}")
        handler(event)

    def _count_time(self, event: dict[str, Any]) -> None:
        """Counts the wall-clock time of each command up to its `end` event, before it waits for MLflow."""
        timestamp = float(event["at"])
        if event["event"] == "session":
            self._session = (timestamp, self.clock_seconds)
        elif event["event"] == "killed":
            self._session = None
        if self._session is not None:
            start, seconds_before = self._session
            self.clock_seconds = max(self.clock_seconds, seconds_before + timestamp - start)
        if event["event"] == "end":
            self._session = None

    def _on_session(self, event: dict[str, Any]) -> None:
        self.state = State.RUNNING
        version = event.get("code", "")
        if version and version not in self.codes[-1:]:
            self.codes.append(version)
        self._on_killed(event)

    def _on_killed(self, _event: dict[str, Any]) -> None:
        """Ends the cost of trainings that ran when the command was killed, as of their last event."""
        for entry in self.running.values():
            entry.cost.end(entry.cost.seen)
        self.running.clear()

    def _on_beat(self, event: dict[str, Any]) -> None:
        """Records that running trainings were alive: after a kill, time counts up to the last beat."""
        for entry in self.running.values():
            entry.cost.seen = float(event["at"])

    def _on_version(self, event: dict[str, Any]) -> None:
        self._versions.setdefault(event.get("scope", ""), []).append(VERSION.validate_python(event))
        self._ranks.clear()

    def _on_open(self, event: dict[str, Any]) -> None:
        entry = Entry(**_pick_fields(Training, self._share_job(event)))
        old_entry = self.entries.get(entry.key)
        if old_entry is not None:  # this table resumes a run that another command ended
            entry.cost = old_entry.cost
            self._ranks.clear()
            if entry.key in self.running:
                self.running[entry.key] = entry
        self.entries[entry.key] = entry
        if entry.number is not None and old_entry is None:
            for version in (None, entry.version):
                self._trial_keys.setdefault((entry.scope, version), []).append(entry.key)
        self._count_open(entry)
        self.confirmation_states.pop(event["confirmation"], None)  # it waits for one more seed

    def _on_confirmation(self, event: dict[str, Any]) -> None:
        content = _pick_fields(Confirmation, self._share_job(event)) | {
            name: tuple(event[name]) for name in ("labels", "roles")
        }
        self.confirmations[event["key"]] = Confirmation(**content)

    def _share_job(self, event: dict[str, Any]) -> dict[str, Any]:
        """Returns the event, whose job shares equal parts in memory with the last job of its search."""
        scope = event.get("scope", "")
        self._last_jobs[scope] = share(event["job"], self._last_jobs.get(scope))
        return {**event, "job": self._last_jobs[scope]}

    def _on_begin(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        if entry.ended:
            self._ranks.clear()
        entry.cost.begin(float(event["at"]), float(event["cpus"]), float(event["gpus"]))
        entry.state, entry.reason = State.RUNNING, ""
        self.running[entry.key] = entry
        self._count_open(entry)
        if entry.confirmation is not None:
            self.confirmation_states.pop(entry.confirmation, None)

    def _on_value(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.intermediate.append((int(event["epoch"]), float(event["score"])))
        entry.cost.seen = float(event["at"])
        self.history.append(("value", entry.key, int(event["epoch"])))

    def _on_close(self, event: dict[str, Any]) -> None:
        entry = self.entries[event["key"]]
        entry.cost.end(float(event["at"]))
        entry.state, entry.reason = State(event["state"]), event["reason"]
        entry.score = None if event["score"] is None else float(event["score"])
        entry.values = [float(value) for value in event["values"]]
        entry.metrics = {name: float(value) for name, value in event["metrics"].items()}
        entry.blocks = {name: tuple(map(float, values)) for name, values in event["blocks"].items()}
        entry.chosen, entry.neighbours = event["chosen"], event.get("neighbours", {})
        entry.same_as = event.get("same_as", "")
        self.running.pop(entry.key, None)
        if entry.ended:
            self.history.append(("close", entry.key, 0))
            self._count_end(entry)

    def _count_open(self, entry: Entry) -> None:
        if entry.number is not None:
            for version in (None, entry.version):
                self._open_keys.setdefault((entry.scope, version), set()).add(entry.key)

    def _count_end(self, entry: Entry) -> None:
        """Counts a trial among those that have ended, and inserts it into the ranks."""
        if entry.number is None:
            return
        for version in (None, entry.version):
            self._open_keys[entry.scope, version].discard(entry.key)
        if not is_ranked(entry) or not self._is_counted(entry):
            return
        for (scope, mode), ranks in self._ranks.items():
            if scope == entry.scope:
                key = rank_key(mode)
                insort(ranks, entry, key=lambda trial: (key(trial), trial.number or 0))

    def _on_stop_search(self, event: dict[str, Any]) -> None:
        self.stops[event["scope"]] = SearchStop(**_pick_fields(SearchStop, event))

    def _on_close_confirmation(self, event: dict[str, Any]) -> None:
        self.confirmation_states[event["key"]] = (State(event["state"]), event["reason"])

    def _on_registered(self, event: dict[str, Any]) -> None:
        self.registered[event["key"]] = event["text"]
        self.registered_runs.add(event["run"])

    def _on_end(self, event: dict[str, Any]) -> None:
        self.state = State(event["state"])

    @property
    def code_tags(self) -> dict[str, str]:
        """The tag with the code versions of all commands; empty if all ran the code of the first."""
        return {Tag.CODE: ", then ".join(self.codes)} if len(self.codes) > 1 else {}

    @property
    def searches(self) -> list[str]:
        """The names of all searches, see `SearchPlan.scope`; the first of a swept job has an empty name."""
        return list(self._versions)

    def versions(self, scope: str = "") -> list[SpaceVersion]:
        """Returns the versions of a search's space in order, the present one last."""
        return self._versions.get(scope, [])

    def trials(self, version: int | None = None, scope: str = "", *, start: int = 0) -> list[Entry]:
        """Returns the trials of a search in order: those of one version of its space, or of all versions.

        The first `start` trials are left out.
        """
        return [self.entries[key] for key in self._trial_keys.get((scope, version), [])[start:]]

    def trial_count(self, version: int | None = None, scope: str = "") -> int:
        """Returns the length of `trials`."""
        return len(self._trial_keys.get((scope, version), ()))

    def left_count(self, version: int | None = None, scope: str = "") -> int:
        """Returns the number of trials that have not ended, of one version of the space or of all."""
        return len(self._open_keys.get((scope, version), ()))

    def counted_trials(self, scope: str = "") -> list[Entry]:
        """Returns the trials of the present search space, and the earlier trials that fit it."""
        return [entry for entry in self.trials(scope=scope) if self._is_counted(entry)]

    def _is_counted(self, entry: Entry) -> bool:
        versions = self.versions(entry.scope)[-1:]
        return any(entry.version == version.number or entry.key in version.kept for version in versions)

    def ranked_trials(self, scope: str, mode: str) -> Sequence[Entry]:
        """Returns the complete `counted_trials`, best first. Later ends are inserted into this list."""
        if (scope, mode) not in self._ranks:
            self._ranks[scope, mode] = rank_trials(self.counted_trials(scope), mode)
        return self._ranks[scope, mode]

    def seeds_of(self, confirmation: str, most: int | None = None) -> list[Entry]:
        """Returns the trainings of the confirmation with this key, one per seed, at most the first `most`."""
        return [entry for entry in self.entries.values() if entry.confirmation == confirmation][:most]

    def used_time(self, unit: Unit) -> float:
        """Returns the seconds of all commands up to now, or the CPU- or GPU-seconds of their trainings."""
        timestamp = now()
        if unit != "clock":
            return math.fsum(entry.cost.used(unit, timestamp) for entry in self.entries.values())
        if self._session is None:
            return self.clock_seconds
        start, seconds_before = self._session
        return max(self.clock_seconds, seconds_before + timestamp - start)


def _dump_item(item: Training | Confirmation) -> dict[str, Any]:
    content = asdict(item)
    if not item.scope:
        del content["scope"]
    return content


def _pick_fields(kind: type[Any], event: dict[str, Any]) -> dict[str, Any]:
    return {field.name: event[field.name] for field in fields(kind) if field.name in event}
