"""The log of a run: a folder of files, written without a server and without MLflow; `Delivery` sends it."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from mlcl.errors import UserError
from mlcl.files import remove_partial, replace_text
from mlcl.store import State
from mlcl.tracking.jsonl import Entry, appending, sync
from mlcl.tracking.log_index import LogIndex
from mlcl.tracking.names import DIFF, MAX_REASON, PACKAGES
from mlcl.tracking.provenance import Provenance
from mlcl.tracking.uri import stored_uri

LOG, TEXTS = "log.jsonl", "files"


def log_folder(home: Path, id: str) -> Path:
    """The folder of a log."""
    return home / "logs" / id


class RunLog:
    """Appends to one log, from several processes and threads at once.

    An entry survives the end of the process once its call has returned; after `flush`, a power cut.
    """

    def __init__(self, home: Path, id: str) -> None:
        self.home, self.id = home, id
        self._folder = log_folder(home, id)
        self._path = self._folder / LOG
        self._index = LogIndex(self._path)
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
        place: int = 0,
        source: Provenance | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Starts a new log, or attaches to one that was started before, which stays as it is.

        `owner` is the id of the run or sweep whose process sets the state, `parent` the id of the log that
        this one is nested in, `uri` the store that it is for, `place` that of the owner's record in the
        home, where the log is the owner's. `texts` are text artifacts by name.
        """
        log = cls(home, id)
        (log._folder / TEXTS).mkdir(parents=True, exist_ok=True)
        contents = dict(texts or {})
        if source is not None:
            texts_of_source = {DIFF: source.diff, PACKAGES: source.packages}
            contents |= {name: text for name, text in texts_of_source.items() if text}
        entry = {
            "kind": "start",
            "time": _now(),
            "uri": stored_uri(uri, home),
            "experiment": experiment,
            "name": name,
            "owner": owner,
            "parent": parent,
            **({"place": place} if place else {}),
            "params": dict(params),
            "tags": dict(source.tags if source else {}) | dict(tags),
        }

        def new(index: LogIndex) -> list[Entry]:
            if index.start:
                return []
            # Texts in the one entry, so that no kill can part them from it.
            return [{**entry, "texts": {name: log._store_text(text) for name, text in contents.items()}}]

        log._append(new)
        return log

    @classmethod
    def attach(cls, home: Path, id: str) -> Self:
        """Attaches to a log that was started here or elsewhere. Raises UserError where there is none."""
        log = cls.find(home, id)
        if log is None:
            found = log_folder(home, id) / LOG
            allowed = "a folder that all nodes share"
            raise UserError("no such log of a run", key="--home", found=found, allowed=allowed)
        return log

    @classmethod
    def find(cls, home: Path, id: str) -> Self | None:
        """Attaches to a log; None where it was not started."""
        log = cls(home, id)
        return log if log._updated_index().start else None

    @property
    def uri(self) -> str:
        """The store that the log is for, as `stored_uri` writes it."""
        return str(self._updated_index().start["uri"])

    @property
    def owner(self) -> str:
        """The id of the run or sweep whose process sets the state."""
        return str(self._updated_index().start["owner"])

    @property
    def state(self) -> State:
        """The latest state, of any process."""
        return self._updated_index().state

    @property
    def reason(self) -> str:
        """Why the run ended so; may be empty."""
        return self._updated_index().reason

    def params(self, params: Mapping[str, str]) -> None:
        """Logs parameters. One that the log has keeps its value."""

        def new(index: LogIndex) -> list[Entry]:
            values = {name: value for name, value in params.items() if name not in index.params}
            return [{"kind": "params", "values": values}] if values else []

        self._append(new)

    def metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Logs metrics at a step. Points that the log has are skipped: a resumed run repeats steps."""
        now = _now()

        def new(index: LogIndex) -> list[Entry]:
            values = index.new_points(metrics, step)
            if not values:
                return []
            numbers = {name: _number(value) for name, value in values.items()}
            return [{"kind": "metrics", "step": step, "time": now, "values": numbers}]

        self._append(new)

    def figures(self, metrics: Mapping[str, float], step: int) -> None:
        """Logs the last metrics: at the step where they have a curve, else at 0, where MLflow draws a bar."""
        curves = self._updated_index().curves()
        self.metrics({name: value for name, value in metrics.items() if name in curves}, step)
        self.metrics({name: value for name, value in metrics.items() if name not in curves}, 0)

    def tags(self, tags: Mapping[str, str]) -> None:
        """Logs tags. A later value replaces an earlier one."""
        self._append(lambda _: [{"kind": "tags", "values": dict(tags)}])

    def artifacts(self, paths: Sequence[Path], under: str | None = None) -> None:
        """Logs files or folders, which are read when they are delivered."""
        entries = [{"kind": "artifact", "path": self._kept(path), "under": under} for path in paths]
        self._append(lambda _: entries)

    def _kept(self, path: Path) -> str:
        """A path below the home without it, so that the home can be moved."""
        root, path = self.home.resolve(), path.resolve()
        return str(path.relative_to(root) if path.is_relative_to(root) else path)

    def text(self, text: str, name: str) -> None:
        """Logs a text artifact. The same text under the same name is logged once."""

        def new(index: LogIndex) -> list[Entry]:
            file = self._store_text(text)
            return [] if index.texts.get(name) == file else [{"kind": "text", "file": file, "name": name}]

        self._append(new)

    def view(self, key: str, view: Mapping[str, Any]) -> None:
        """Logs a shared view of MLflow's pages, see `mlcl.tracking.shared_view`, for the run's experiment."""
        self._append(lambda _: [{"kind": "view", "key": key, "view": dict(view)}])

    def flush(self) -> None:
        """Waits until all entries are on the disk. Never waits for a network."""
        sync(self._path)

    def finish(self, state: State, reason: str = "") -> None:
        """Sets the final state, removes partial files of killed writers, and flushes.

        The present state is not written again.
        """
        reason = reason[:MAX_REASON]
        entry = {"kind": "finish", "state": state.value, "reason": reason, "time": _now()}

        def new(index: LogIndex) -> list[Entry]:
            remove_partial(self._folder / TEXTS)
            return [] if (index.state, index.reason) == (state, reason) else [entry]

        self._append(new)
        self.flush()

    def reopen(self) -> None:
        """Sets the state RUNNING where it is another one."""
        self._append(lambda index: [] if index.state is State.RUNNING else [{"kind": "reopen"}])

    def _store_text(self, text: str) -> str:
        """Writes the text to a file, within `_append`; returns the file's name, a digest of the text."""
        name = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
        path = self._folder / TEXTS / name
        if not path.exists():
            replace_text(path, text)
        return name

    def _updated_index(self) -> LogIndex:
        with self._guard:
            self._index.update()
            return self._index

    def _append(self, new: Callable[[LogIndex], Sequence[Entry]]) -> None:
        """Appends what `new` returns; it is called while no other process can append."""
        with self._guard, appending(self._path) as file:
            self._index.update()
            try:
                entries = new(self._index)
                if entries:
                    self._index.add_own(file.append(entries, self._index.offset))
            except BaseException:
                # The file may have any content now: read it anew.
                self._index = LogIndex(self._path)
                raise


def _now() -> int:
    return int(time.time() * 1000)


def _number(value: Any) -> float | str:
    """JSON has no NaN and no infinity: these are kept as text, which `float` reads back."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)
