"""Reports the progress of a sweep or table to a listener, and its end to the URL of `tracking.notify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mlcl.config.cluster import Reference, check_url
from mlcl.errors import UserError
from mlcl.markup import format_count
from mlcl.service.engine.budget import Account
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger, now
from mlcl.tracking import State

Stage = Literal["search", "race", "confirmation", "table", "encoding"]
Kind = Literal["note", "stage", "encoding", "begin", "rung", "close", "end"]


@dataclass(frozen=True)
class Row:
    """One training: its state, its last epoch and score, and the seconds that it has run.

    `epochs` is 0 for a fitted baseline. `metric` names the score. Once a training with post-hoc keys has
    ended, the score is the best over the values of these keys.
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
    """The present state of a sweep or table: `done` of `total` trainings of the stage have ended.

    In the stage `encoding`, before the first training, `done` and `total` count rows of frozen inputs.

    `best` is the label and the score of the best search trial; `seconds_left` is the expected time to the end
    of the stage, None if it cannot be estimated yet; `budget_left` is a text such as `1.2 gpu-h`.
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
    """An event of a command: a note, the start of a stage, the end, or the start or end of a training.

    The kind `rung` is an intermediate value of a training, `encoding` the progress of encoding inputs.
    """

    kind: Kind
    text: str = ""
    row: Row | None = None
    progress: Progress | None = None


ProgressListener = Callable[[ProgressEvent], None]
"""A function that receives each event. It is called in the thread of the command, which waits for it."""


def guard_listener(watch: ProgressListener) -> ProgressListener:
    """Wraps a listener so that it is not called again after it raised OSError, as for a closed terminal."""
    closed = False

    def tell(event: ProgressEvent) -> None:
        nonlocal closed
        if not closed:
            try:
                watch(event)
            except OSError:
                closed = True

    return tell


class Reporter:
    """Sends events with the progress to the listener `watch`.

    `metric` names the intermediate scores and `score` the final ones. `best` returns the best trial so far.
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
        self._metric, self._score, self._find_best = metric, score, best
        self._stage: Stage = "search"
        self._done_count = self._total_count = self._concurrency = 0
        self._durations: list[float] = []
        self._best_entry: Entry | None = None

    def note(self, text: str) -> None:
        """Sends a message for the user."""
        self._watch(ProgressEvent("note", text))

    def start_stage(self, stage: Stage, done: int, total: int, concurrency: int) -> None:
        """Starts a stage of `total` trainings, of which `done` were ended by earlier commands."""
        self._stage, self._done_count, self._total_count, self._concurrency = stage, done, total, concurrency
        self._durations = []  # another stage may train another encoder
        self._best_entry = self._find_best()
        trainings = format_count(total, "training")
        text = f"{stage}: {trainings}, {done} done, up to {concurrency} at once"
        if stage == "table":
            text = f"{trainings}, up to {concurrency} at once"
        self._watch(ProgressEvent("stage", text, progress=self._progress()))

    def report_encoding(self, done: int, total: int, seconds_left: float | None, text: str) -> None:
        """Sends how many rows of frozen inputs are encoded."""
        budget_left = self._account.left_text()
        progress = Progress("encoding", done, total, "", seconds_left=seconds_left, budget_left=budget_left)
        self._watch(ProgressEvent("encoding", text, progress=progress))

    def tell(self, kind: Kind, entry: Entry) -> None:
        """Sends an event of a training: `begin`, `rung` or `close`."""
        if kind == "close" and entry.ended:
            self._best_entry = self._find_best()
            self._done_count += 1
            self._durations.append(entry.cost.seconds)
        self._watch(ProgressEvent(kind, row=self._row(entry), progress=self._progress()))

    def end(self, text: str) -> None:
        """Sends the end of the command."""
        self._watch(ProgressEvent("end", text, progress=self._progress()))

    def _row(self, entry: Entry) -> Row:
        train = entry.job["train"]
        epochs = 0 if entry.job.get("baseline") else train["epochs"]
        epoch, score = entry.intermediate[-1] if entry.intermediate else (0, None)
        metric = entry.job["evaluation"]["metric"]
        if entry.metrics:
            score, metric = entry.score, self._score
        stopped_early = train["patience"] is not None and bool(entry.intermediate)
        if entry.state is State.COMPLETE and not stopped_early:
            epoch = epochs
        return Row(
            entry.label,
            entry.state,
            epoch,
            epochs,
            score,
            entry.cost.used(timestamp=now()),
            entry.reason,
            metric,
            entry.settings,
        )

    def _progress(self) -> Progress:
        rows = tuple(self._row(entry) for entry in self._ledger.running.values())
        best_entry = self._best_entry
        best = (
            None if best_entry is None or best_entry.score is None else (best_entry.label, best_entry.score)
        )
        return Progress(
            self._stage,
            self._done_count,
            self._total_count,
            self._metric,
            rows,
            best,
            self._seconds_left(rows),
            self._account.left_text(),
        )

    def _seconds_left(self, rows: Sequence[Row]) -> float | None:
        """Estimates the stage's seconds left by the mean of ended trainings and the pace of running ones."""
        # A running training goes on at the pace of its epochs so far.
        remainders = [
            row.seconds / row.epoch * (row.epochs - row.epoch) if row.epoch else 0.0 for row in rows
        ]
        trainings = self._total_count - self._done_count
        if self._durations:
            mean = sum(self._durations) / len(self._durations)
            return max(mean * trainings / max(1, min(self._concurrency, trainings)), *remainders, 0.0)
        return (
            max(remainders) if remainders and min(remainders) > 0 and trainings <= len(remainders) else None
        )


NOTIFY_KEY = "tracking.notify"
NOTIFY_SECONDS = 10.0
"""Seconds to wait for the answer to the POST."""


def resolve_target(target: str | Reference | None) -> str | None:
    """Returns the URL to post to, or None. Raises UserError, without the URL, if a secret is not a URL."""
    if not isinstance(target, Reference):
        return target
    try:
        return check_url(target.resolve(NOTIFY_KEY))
    except ValueError as error:
        raise UserError(f"the secret is {error}", key=NOTIFY_KEY, allowed="http://..., https://...") from None


class _NoRedirect(HTTPRedirectHandler):
    """Raises HTTPError for a redirect, which would turn the POST into a GET without a body."""

    def redirect_request(self, *_request: Any) -> None:
        """Returns None, so that urllib raises HTTPError."""


def notify(url: str | None, content: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    """Posts `content` as JSON, if there is a URL. Announces a failure, but not the URL: it may be secret."""
    if url is None:
        return
    body = json.dumps(content).encode()
    request = Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with build_opener(_NoRedirect).open(request, timeout=NOTIFY_SECONDS):
            pass
    except (OSError, HTTPException, ValueError) as error:
        problem = str(getattr(error, "reason", "") or getattr(error, "code", "") or type(error).__name__)
        announce(f"{urlsplit(url).hostname} is not notified: {problem}")
