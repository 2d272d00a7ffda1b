"""What the watcher of a sweep is told."""

from __future__ import annotations

import time

from mlcl.service.engine.budget import Account
from mlcl.service.engine.ledger import Entry, Ledger
from mlcl.service.engine.progress_events import Kind, Progress, ProgressEvent, ProgressListener, Row, Stage


class Reporter:
    """Builds the sweep's progress from its ledger and the clock."""

    def __init__(
        self, ledger: Ledger, account: Account, metric: str, score: str, watch: ProgressListener
    ) -> None:
        self._ledger, self._account, self._watch = ledger, account, watch
        self._metric, self._score = metric, score
        self._stage: Stage = "search"
        self._done = self._total = self._at_once = 0
        self._seconds: list[float] = []
        self._began: dict[str, float] = {}
        self.best: Entry | None = None

    def note(self, text: str) -> None:
        """Something that the person should know."""
        self._watch(ProgressEvent("note", text))

    def stage(self, stage: Stage, done: int, total: int, at_once: int) -> None:
        """A stage begins, with `done` of its trainings done by earlier commands."""
        self._stage, self._done, self._total, self._at_once = stage, done, total, at_once
        text = f"{stage}: {total} trainings, {done} done, up to {at_once} at once"
        self._watch(ProgressEvent("stage", text, progress=self._progress()))

    def begin(self, entry: Entry) -> None:
        """A training begins."""
        self._began[entry.key] = time.monotonic()
        self._tell("begin", entry)

    def rung(self, entry: Entry) -> None:
        """A training was validated."""
        self._tell("rung", entry)

    def close(self, entry: Entry) -> None:
        """A training has ended, or was interrupted."""
        began = self._began.pop(entry.key, None)
        if entry.ended:
            self._done += 1
            if began is not None:
                self._seconds.append(time.monotonic() - began)
        self._tell("close", entry)

    def end(self, text: str) -> None:
        """The sweep has ended."""
        self._watch(ProgressEvent("end", text, progress=self._progress()))

    def mean_seconds(self) -> float | None:
        """The mean time of this stage's trainings that ended."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else None

    def _tell(self, kind: Kind, entry: Entry) -> None:
        self._watch(ProgressEvent(kind, row=self._row(entry), progress=self._progress()))

    def _row(self, entry: Entry) -> Row:
        epochs = int(entry.job["train"]["epochs"])
        epoch, score = entry.rungs[-1] if entry.rungs else (0, None)
        if entry.score is not None:
            score = entry.score
        began = self._began.get(entry.key)
        seconds = entry.seconds + (time.monotonic() - began if began is not None else 0.0)
        if entry.ended and entry.metrics:
            epoch = epochs
        metric = self._score if entry.metrics else self._metric
        return Row(entry.label, entry.state, epoch, epochs, score, seconds, entry.reason, metric)

    def _progress(self) -> Progress:
        running = tuple(self._row(self._ledger.entries[key]) for key in self._began)
        best = None
        if self.best is not None and self.best.score is not None:
            best = (self.best.label, self.best.score)
        return Progress(
            self._stage,
            self._done,
            self._total,
            self._metric,
            running,
            best,
            self._seconds_left(),
            self._account.left_text(),
        )

    def _seconds_left(self) -> float | None:
        mean = self.mean_seconds()
        if mean is None:
            return None
        rounds = (self._total - self._done) / max(1, min(self._at_once, self._total - self._done or 1))
        return mean * rounds
