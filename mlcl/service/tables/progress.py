"""What the watcher of a table is told."""

from __future__ import annotations

import time
from dataclasses import replace

from mlcl.service.engine.progress_events import Kind, Progress, ProgressEvent, ProgressListener, Row
from mlcl.service.tables.plan import TableRun
from mlcl.tracking import State


class TableProgress:
    """Builds the table's progress from what its desk sees, and the clock."""

    def __init__(self, total: int, at_once: int, watch: ProgressListener) -> None:
        self._total, self._at_once, self._watch = total, at_once, watch
        self._rows: dict[str, Row] = {}
        self._began: dict[str, float] = {}
        self._seconds: list[float] = []
        self._ended = 0
        self._tell("stage", text=f"{total} training{'s' if total > 1 else ''}, up to {at_once} at once")

    def begin(self, key: str, run: TableRun) -> None:
        """A process begins with a training."""
        train, metric = run.job.train, run.job.evaluation.metric
        self._began[key] = time.monotonic()
        self._rows[key] = Row(run.label, State.RUNNING, 0, train.epochs, None, 0.0, metric=metric)
        self._tell("begin", self._rows[key])

    def rung(self, key: str, epoch: int, score: float) -> None:
        """A validation's score."""
        self._rows[key] = replace(self._rows[key], epoch=epoch, score=score, seconds=self._since(key))
        self._tell("rung", self._rows[key])

    def close(self, key: str, run: TableRun, state: State, reason: str) -> None:
        """A training has ended, or was interrupted."""
        train = run.job.train
        row = self._rows.pop(key, Row(run.label, state, 0, train.epochs, None, 0.0))
        seconds = self._since(key)
        if key in self._began and state is State.COMPLETE:
            self._seconds.append(seconds)
        self._began.pop(key, None)
        self._ended += state is not State.STOPPED
        whole = state is State.COMPLETE and train.patience is None
        epoch = train.epochs if whole else row.epoch
        self._tell("close", replace(row, state=state, epoch=epoch, seconds=seconds, reason=reason))

    def _since(self, key: str) -> float:
        now = time.monotonic()
        return now - self._began.get(key, now)

    def _tell(self, kind: Kind, row: Row | None = None, text: str = "") -> None:
        left = self._total - self._ended
        mean = sum(self._seconds) / len(self._seconds) if self._seconds else None
        progress = Progress(
            stage="table",
            done=self._ended,
            total=self._total,
            metric="score",
            running=tuple(self._rows.values()),
            seconds_left=None if mean is None else mean * left / max(1, self._at_once),
        )
        self._watch(ProgressEvent(kind, text, row=row, progress=progress))
