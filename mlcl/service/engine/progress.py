"""What is reported while a sweep or a table trains."""

from __future__ import annotations

import time
from collections.abc import Callable

from mlcl.service.engine.budget import Account
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress_events import Kind, Progress, ProgressEvent, ProgressListener, Row, Stage
from mlcl.tracking import State


class Reporter:
    """Builds the progress from the ledger and the clock.

    `metric` names what is scored at validations, `score` the final figure; `best` finds the best training.
    """

    def __init__(
        self,
        ledger: Ledger,
        account: Account,
        watch: ProgressListener,
        *,
        metric: str,
        score: str,
        best: Callable[[], Entry | None] = lambda: None,
    ) -> None:
        self._ledger, self._account, self._watch = ledger, account, watch
        self._metric, self._score, self._best = metric, score, best
        self._stage: Stage = "search"
        self._done = self._total = self._at_once = 0
        self._seconds: list[float] = []
        self._began: dict[str, float] = {}

    def note(self, text: str) -> None:
        """Something that the person should know."""
        self._watch(ProgressEvent("note", text))

    def stage(self, stage: Stage, done: int, total: int, at_once: int) -> None:
        """A stage begins, with `done` of its trainings done by earlier commands."""
        self._stage, self._done, self._total, self._at_once = stage, done, total, at_once
        text = f"{stage}: {total} trainings, {done} done, up to {at_once} at once"
        if stage == "table":
            text = f"{total} training{'s' if total > 1 else ''}, up to {at_once} at once"
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
        """The command has ended."""
        self._watch(ProgressEvent("end", text, progress=self._progress()))

    def _tell(self, kind: Kind, entry: Entry) -> None:
        self._watch(ProgressEvent(kind, row=self._row(entry), progress=self._progress()))

    def _row(self, entry: Entry) -> Row:
        train = entry.job["train"]
        epoch, score = entry.rungs[-1] if entry.rungs else (0, None)
        metric = entry.job["evaluation"]["metric"]
        if entry.metrics:
            score, metric = entry.score, self._score
        began = self._began.get(entry.key)
        seconds = entry.cost.seconds + (time.monotonic() - began if began is not None else 0.0)
        if entry.state is State.COMPLETE and (entry.metrics or train["patience"] is None):
            epoch = train["epochs"]
        return Row(
            entry.label,
            entry.state,
            epoch,
            train["epochs"],
            score,
            seconds,
            entry.reason,
            metric,
            entry.settings,
        )

    def _progress(self) -> Progress:
        running = tuple(self._row(self._ledger.entries[key]) for key in self._began)
        found = self._best()
        best = None if found is None or found.score is None else (found.label, found.score)
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
        """From the mean time of this stage's trainings that ended."""
        if not self._seconds:
            return None
        left = self._total - self._done
        return sum(self._seconds) / len(self._seconds) * left / max(1, min(self._at_once, left))
