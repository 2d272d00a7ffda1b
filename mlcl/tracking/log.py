"""A run's log: a folder of files. Writing to it needs no server and no MLflow; `Delivery` sends it on."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from mlcl.errors import UserError
from mlcl.tracking.atomic_files import replace_text
from mlcl.tracking.jsonl import Entry, appending, sync
from mlcl.tracking.log_index import LogIndex
from mlcl.tracking.names import DIFF, MAX_REASON
from mlcl.tracking.provenance import Provenance
from mlcl.tracking.states import State
from mlcl.tracking.uri import shown

LOG, TEXTS = "log.jsonl", "files"


def log_folder(home: Path, id: str) -> Path:
    """Where a log lies."""
    return home / "logs" / id


class RunLog:
    """Appends to one log. Several processes may do so at once, and several threads.

    What a call has returned from survives the end of the process; `flush` makes it survive the machine's.
    """

    def __init__(self, home: Path, id: str) -> None:
        self.home, self.id = home, id
        self._folder = log_folder(home, id)
        self._path = self._folder / LOG
        self._seen = LogIndex(self._path)
        self._guard = threading.Lock()

    @classmethod
    def start(
        cls,
        home: Path,
        id: str,
        *,
        uri: str,
        experiment: str,
        name: str,
        owner: str,
        params: Mapping[str, str],
        tags: Mapping[str, str],
        parent: str | None = None,
        source: Provenance | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """A new log; where it was started before, it is attached and stays as it is.

        `owner` is the id of the run or sweep whose process answers for its state, `parent` the log that
        this one is nested in, `uri` the store it is meant for. `texts` are text artifacts by name.
        """
        log = cls(home, id)
        (log._folder / TEXTS).mkdir(parents=True, exist_ok=True)
        contents = dict(texts or {})
        if source is not None and source.diff:
            contents[DIFF] = source.diff
        entry = {
            "kind": "start",
            "time": _now(),
            "uri": shown(uri),
            "experiment": experiment,
            "name": name,
            "owner": owner,
            "parent": parent,
            "params": dict(params),
            "tags": dict(source.tags if source else {}) | dict(tags),
            # In the one entry, so that no kill can part them from it.
            "texts": {name: log._keep(text) for name, text in contents.items()},
        }
        log._append(lambda seen: [] if seen.start else [entry])
        return log

    @classmethod
    def attach(cls, home: Path, id: str) -> Self:
        """A log that has been started, here or in another process. Raises UserError where there is none."""
        log = cls.find(home, id)
        if log is None:
            found = log_folder(home, id) / LOG
            allowed = "a folder that all nodes share"
            raise UserError("no such log of a run", key="--home", found=found, allowed=allowed)
        return log

    @classmethod
    def find(cls, home: Path, id: str) -> Self | None:
        """The same; None where there is none."""
        log = cls(home, id)
        return log if log._caught_up().start else None

    @property
    def uri(self) -> str:
        """The store it is meant for, without a password."""
        return str(self._caught_up().start["uri"])

    @property
    def owner(self) -> str:
        """The id of the run or sweep whose process answers for its state."""
        return str(self._caught_up().start["owner"])

    @property
    def state(self) -> State:
        """The state that the log tells, whoever wrote it."""
        return self._caught_up().state

    @property
    def reason(self) -> str:
        """Why it ended so; empty where nobody said."""
        return self._caught_up().reason

    def params(self, params: Mapping[str, str]) -> None:
        """Parameters, written once: one that the log has keeps its value."""

        def new(seen: LogIndex) -> list[Entry]:
            values = {name: value for name, value in params.items() if name not in seen.params}
            return [{"kind": "params", "values": values}] if values else []

        self._append(new)

    def metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics at a step. A point that the log has is left out: a resumed run repeats steps."""
        now = _now()

        def new(seen: LogIndex) -> list[Entry]:
            values = seen.new_points(metrics, step)
            if not values:
                return []
            numbers = {name: _number(value) for name, value in values.items()}
            return [{"kind": "metrics", "step": step, "time": now, "values": numbers}]

        self._append(new)

    def tags(self, tags: Mapping[str, str]) -> None:
        """Tags; a later value replaces an earlier one."""
        self._append(lambda _: [{"kind": "tags", "values": dict(tags)}])

    def artifacts(self, paths: Sequence[Path], under: str | None = None) -> None:
        """Files or folders, to be copied to the run's artifacts when they are delivered."""
        entries = [{"kind": "artifact", "path": str(path.resolve()), "under": under} for path in paths]
        self._append(lambda _: entries)

    def text(self, text: str, name: str) -> None:
        """A text artifact. The same text under the same name is written once."""
        file = self._keep(text)
        entry = {"kind": "text", "file": file, "name": name}
        self._append(lambda seen: [] if seen.texts.get(name) == file else [entry])

    def flush(self) -> None:
        """Waits until all that was logged is on the disk. Never waits for a network."""
        sync(self._path)

    def finish(self, state: State, reason: str = "") -> None:
        """Sets the final state, on the disk. The state that it has already is not written again."""
        reason = reason[:MAX_REASON]
        entry = {"kind": "finish", "state": state.value, "reason": reason, "time": _now()}
        self._append(lambda seen: [] if (seen.state, seen.reason) == (state, reason) else [entry])
        self.flush()

    def reopen(self) -> None:
        """RUNNING again, where it is not."""
        self._append(lambda seen: [] if seen.state is State.RUNNING else [{"kind": "reopen"}])

    def _keep(self, text: str) -> str:
        """The name of the file that holds the text: a digest, so that no two runs of a command differ."""
        name = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
        path = self._folder / TEXTS / name
        if not path.exists():
            replace_text(path, text)
        return name

    def _caught_up(self) -> LogIndex:
        with self._guard:
            self._seen.catch_up()
            return self._seen

    def _append(self, new: Callable[[LogIndex], Sequence[Entry]]) -> None:
        """Appends what is new, decided while nobody else can append."""
        with self._guard, appending(self._path) as file:
            self._seen.catch_up()
            try:
                entries = new(self._seen)
                if entries:
                    self._seen.took(file.append(entries, self._seen.offset))
            except BaseException:
                # What is in the file is unknown now: it is read anew.
                self._seen = LogIndex(self._path)
                raise


def _now() -> int:
    return int(time.time() * 1000)


def _number(value: Any) -> float | str:
    """JSON has no NaN and no infinity: these are kept as text, which `float` reads back."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)
