"""What is reported while a sweep or a table trains, to a live table, plain lines or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.markup import counted
from mlcl.service.engine.budget import Account
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger, now
from mlcl.tracking import State

Stage = Literal["search", "confirmation", "table"]
Kind = Literal["note", "stage", "begin", "rung", "close", "end"]


@dataclass(frozen=True)
class Row:
    """One training as it stands: its last epoch and score; `seconds` since it began.

    `metric` names the score: a finished training's is the best over the post-hoc keys, where some are free.
    `settings` are the keys that were drawn.
    """

    label: str
    state: State
    epoch: int
    epochs: int
    score: float | None
    seconds: float
    reason: str = ""
    metric: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """The sweep or table as it stands.

    `running` are the trainings that run now; `best` is the best finished search trial; `seconds_left` is the
    expected time to the end of the stage, None while nothing is known; `budget_left` reads `1.2 gpu-h`.
    """

    stage: Stage
    done: int
    total: int
    metric: str
    running: tuple[Row, ...] = ()
    best: tuple[str, float] | None = None
    seconds_left: float | None = None
    budget_left: str | None = None


@dataclass(frozen=True)
class ProgressEvent:
    """Something that has happened.

    `note` says something to the person (`text`); `stage` begins a stage; `begin`, `rung` and `close` are
    about one training (`row`); `end` is the last one.
    """

    kind: Kind
    text: str = ""
    row: Row | None = None
    progress: Progress | None = None


ProgressListener = Callable[[ProgressEvent], None]
"""Called in the command's thread: it must return at once."""


def steady(watch: ProgressListener) -> ProgressListener:
    """A listener that ignores OSError: trainings go on when their progress has no reader or terminal."""
    gone = False

    def tell(event: ProgressEvent) -> None:
        nonlocal gone
        if not gone:
            try:
                watch(event)
            except OSError:
                gone = True

    return tell


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

    def note(self, text: str) -> None:
        """Something that the person should know."""
        self._watch(ProgressEvent("note", text))

    def stage(self, stage: Stage, done: int, total: int, at_once: int) -> None:
        """A stage begins, with `done` of its trainings done by earlier commands."""
        self._stage, self._done, self._total, self._at_once = stage, done, total, at_once
        trainings = counted(total, "training")
        text = f"{stage}: {trainings}, {done} done, up to {at_once} at once"
        if stage == "table":
            text = f"{trainings}, up to {at_once} at once"
        self._watch(ProgressEvent("stage", text, progress=self._progress()))

    def begin(self, entry: Entry) -> None:
        """A training begins."""
        self._tell("begin", entry)

    def rung(self, entry: Entry) -> None:
        """A training was validated."""
        self._tell("rung", entry)

    def close(self, entry: Entry) -> None:
        """A training has ended, or was interrupted."""
        if entry.ended:
            self._done += 1
            self._seconds.append(entry.cost.seconds)
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
        if entry.state is State.COMPLETE and (entry.metrics or train["patience"] is None):
            epoch = train["epochs"]
        return Row(
            entry.label,
            entry.state,
            epoch,
            train["epochs"],
            score,
            entry.cost.used(at=now()),
            entry.reason,
            metric,
            entry.settings,
        )

    def _progress(self) -> Progress:
        running = tuple(
            self._row(entry) for entry in self._ledger.entries.values() if entry.cost.began is not None
        )
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
