"""The log of a run, a folder of files written without a server or MLflow, and a listener that fills it.

Its lines of JSON stay readable after a writer was killed. `Delivery` sends the log to MLflow.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from typing_extensions import Self

from mlcl.errors import UserError
from mlcl.files import remove_partial, replace_text
from mlcl.store import State
from mlcl.tracking.names import DIFF, MAX_REASON, PACKAGES
from mlcl.tracking.provenance import Provenance
from mlcl.tracking.uri import stored_uri
from mlcl.training.events import Event, Listener

Entry = Mapping[str, Any]


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yields complete lines of a file from byte `offset` on, each with its end; none if there is no file."""
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
    """Returns the JSON object of the first line; an empty dict if there is none."""
    return next((decode(line) for line, _ in read_lines(path)), {})


def append(path: Path, entries: Iterable[Entry]) -> None:
    """Appends entries as lines, in place of a partial last line. Complete lines stay after an OSError."""
    lines = b"".join(
        json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n" for entry in entries
    )
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # Locked, since workers of a lost node may run on for a while, and write.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)
        rest = memoryview(lines)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


LOG, TEXTS = "log.jsonl", "files"
MEGABYTE = 2**20
METRICS = b'{"kind":"metrics"'
"""The beginning of a line with metrics, by which such lines are recognised without parsing them."""


def log_folder(home: Path, id: str) -> Path:
    """Returns the folder of the log `id` under the home."""
    return home / "logs" / id


class RunLog:
    """Writes the log of a run. Entries that other processes append after it was opened are not noticed.

    Once a call has returned, its entry survives the end of the process; after `flush` also a power cut.
    Entries that a resumed or repeated command would write a second time are left out.
    """

    def __init__(self, home: Path, id: str) -> None:
        self.home, self.id = home, id
        self._folder = log_folder(home, id)
        self._path = self._folder / LOG
        self.state, self.reason = State.RUNNING, ""
        """The last state in the log, for MLflow; the present state of a run is in the home's database."""
        self._param_names: set[str] = set()
        self._artifact_paths: set[str] = set()
        self._is_started = False
        for line, _ in read_lines(self._path):
            if not line.startswith(METRICS):
                self._read_entry(decode(line))

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
        """Starts a new log, or attaches to a log with this id that was started before, whose entries stay.

        `uri` is the store to which it will be sent, `owner` the id of the run, sweep or table whose command
        sets the state, `parent` the id of the log whose run will be the parent run. `texts` are text
        artifacts by name.
        """
        log = cls(home, id)
        if log._is_started:
            return log
        (log._folder / TEXTS).mkdir(parents=True, exist_ok=True)
        contents = dict(texts or {})
        if source is not None:
            of_source = {DIFF: source.diff, PACKAGES: source.packages}
            contents |= {name: text for name, text in of_source.items() if text}
        log._append(
            {
                "kind": "start",
                "time": _timestamp(),
                "uri": stored_uri(uri, home),
                "experiment": experiment,
                "name": name,
                "owner": owner,
                "parent": parent,
                "params": dict(params),
                "tags": dict(source.tags if source else {}) | dict(tags),
                # They are in this entry, so that the log has them even if the process is killed.
                "texts": {name: log._store_text(text) for name, text in contents.items()},
            }
        )
        return log

    @classmethod
    def attach(cls, home: Path, id: str) -> Self:
        """Attaches to a log that this or another process started. Raises UserError if there is none."""
        log = cls.find(home, id)
        if log is None:
            path = log_folder(home, id) / LOG
            allowed = "a folder that all nodes share"
            raise UserError("no such log of a run", key="--home", found=path, allowed=allowed)
        return log

    @classmethod
    def find(cls, home: Path, id: str) -> Self | None:
        """Attaches to the log with this id, and returns it; returns None if no process has started it."""
        log = cls(home, id)
        return log if log._is_started else None

    def log_params(self, params: Mapping[str, str]) -> None:
        """Logs parameters. A parameter that the log already has keeps its value."""
        values = {name: value for name, value in params.items() if name not in self._param_names}
        if values:
            self._append({"kind": "params", "values": values})

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Logs metrics at a step, except those that the log has at this or a later one, as after a resume."""
        values = {
            name: _to_number(number) for name, number in metrics.items() if self._last_point(name)[0] < step
        }
        if values:
            append(self._path, [{"kind": "metrics", "step": step, "time": _timestamp(), "values": values}])
            self._last_points |= {name: (step, value) for name, value in values.items()}

    def log_final_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Logs final metrics at a step, so that the last point of each, which MLflow shows, has this value.

        A metric without points after step 0 is logged at step 0: MLflow draws it as a bar. If a curve has
        another value at `step`, the final one is at the step after its last: after early stopping, the final
        metrics are those of the best epoch.
        """
        values_by_step: dict[int, dict[str, float]] = {}
        for name, value in metrics.items():
            last_step, last_value = self._last_point(name)
            same = last_value == _to_number(value)
            first = last_step < 0 or (last_step == 0 and same)
            values_by_step.setdefault(
                0 if first else step if same or last_step < step else last_step + 1, {}
            )[name] = value
        for metric_step, values in values_by_step.items():
            self.log_metrics(values, metric_step)

    def _last_point(self, name: str) -> tuple[int, float | str]:
        return self._last_points.get(name, (-1, ""))

    @cached_property
    def _last_points(self) -> dict[str, tuple[int, float | str]]:
        """The last point of each metric in the log, as step and value, keyed by the metric's name."""
        points: dict[str, tuple[int, float | str]] = {}
        for line, _ in read_lines(self._path):
            if line.startswith(METRICS) and (entry := decode(line)):
                points |= {name: (entry["step"], value) for name, value in entry["values"].items()}
        return points

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Logs tags. A later value replaces an earlier one."""
        self._append({"kind": "tags", "values": dict(tags)})

    def log_artifacts(self, paths: Sequence[Path]) -> None:
        """Logs files or folders as artifacts. Their content is read only when they are sent to MLflow."""
        self._append(*({"kind": "artifact", "path": self._relative_path(path)} for path in paths))

    def has_artifact(self, path: Path) -> bool:
        """Whether a file or folder was logged as an artifact."""
        return self._relative_path(path) in self._artifact_paths

    def _relative_path(self, path: Path) -> str:
        """Returns the path relative to the home if it is inside of it, so that the home can be moved."""
        root, path = self.home.resolve(), path.resolve()
        return str(path.relative_to(root) if path.is_relative_to(root) else path)

    def log_text(self, text: str, name: str) -> None:
        """Logs a text artifact. A later text of the same name replaces an earlier one."""
        self._append({"kind": "text", "file": self._store_text(text), "name": name})

    def log_view(self, key: str, view: Mapping[str, Any]) -> None:
        """Logs a shared view of MLflow's pages for the run's experiment, see `mlcl.tracking.shared_view`."""
        self._append({"kind": "view", "key": key, "view": dict(view)})

    def set_state(self, state: State, reason: str = "") -> None:
        """Logs a state and its reason, unless the last ones equal them, and flushes the log.

        Any state but RUNNING also removes partial files.
        """
        reason = reason[:MAX_REASON]
        if (state, reason) != (self.state, self.reason):
            entry = {"kind": "state", "state": state.value, "time": _timestamp()}
            # An empty reason is sent only where it replaces another.
            self._append(entry | ({"reason": reason} if reason or self.reason else {}))
        if state is not State.RUNNING:
            remove_partial(self._folder / TEXTS)
        self.flush()

    def flush(self) -> None:
        """Waits until all entries are on the disk. It never waits for the network."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())

    def _store_text(self, text: str) -> str:
        """Writes the text to a file; returns the file's name, a digest of the text."""
        name = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
        path = self._folder / TEXTS / name
        if not path.exists():
            replace_text(path, text)
        return name

    def _append(self, *entries: Entry) -> None:
        append(self._path, entries)
        for entry in entries:
            self._read_entry(entry)

    def _read_entry(self, entry: Entry) -> None:
        match entry.get("kind"):
            case "start":
                self._is_started = True
                self._param_names |= entry["params"].keys()
            case "params":
                self._param_names |= entry["values"].keys()
            case "artifact":
                self._artifact_paths.add(entry["path"])
            case "state":
                self.state, self.reason = State(entry["state"]), entry.get("reason", "")


def _timestamp() -> int:
    return int(time.time() * 1000)


def _to_number(value: Any) -> float | str:
    """Returns a float; for NaN and infinity, which JSON lacks, returns a text that `float` reads."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)


def mlflow_listener(
    log: RunLog, next_listener: Listener = lambda _: None, *, system: bool = False
) -> Listener:
    """Returns a listener that logs the metrics of every training event and then calls `next_listener`.

    With `system`, load and memory of the machine are logged, too. The log is flushed before a checkpoint is
    written: a resumed run repeats only the steps after its checkpoint, so that a kill loses no metric.
    """

    def listen(event: Event) -> None:
        if event.metrics:
            write = log.log_final_metrics if event.kind == "end" else log.log_metrics
            machine = system_metrics() if system and event.kind != "end" else {}
            write({**event.metrics, **machine, "epoch": event.epoch}, event.step)
        if event.kind in ("saving", "end"):
            log.flush()
        next_listener(event)

    return listen


def system_metrics() -> dict[str, float]:
    """Returns load and memory of machine and GPU by MLflow's names; the CPU's load since the last call."""
    import psutil
    import torch  # slow to import

    memory = psutil.virtual_memory()
    metrics = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / MEGABYTE,
        "system_memory_usage_percentage": memory.percent,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        device = torch.cuda.current_device()
        (free, total), gpu = torch.cuda.mem_get_info(device), f"gpu_{device}"
        metrics[f"{gpu}_memory_usage_megabytes"] = (total - free) / MEGABYTE
        metrics[f"{gpu}_memory_usage_percentage"] = 100 * (total - free) / total
        with suppress(ModuleNotFoundError, RuntimeError):
            metrics[f"{gpu}_utilization_percentage"] = float(torch.cuda.utilization(device))
    return {f"system/{name}": value for name, value in metrics.items()}
