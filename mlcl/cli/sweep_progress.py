"""Progress of a sweep as text: plain lines for a log, JSON lines for a program."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict

from mlcl.cli.output import errors, say
from mlcl.results.documents import finite
from mlcl.service.engine.progress import Progress, ProgressEvent, Row

PLAIN_EVERY = 10.0
"""Seconds between plain lines while no training ends."""


def print_event(event: ProgressEvent) -> None:
    """A watcher that prints every event as one JSON object on a line of standard error."""
    errors.out(json.dumps(finite(asdict(event)), allow_nan=False), highlight=False)


class PlainLines:
    """A watcher that prints a line for every training that ends, and now and then one for those that run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def __call__(self, event: ProgressEvent) -> None:
        """Prints the event, unless it is one of many."""
        now = self._clock()
        if event.kind in ("begin", "rung") and now - self._last < PLAIN_EVERY:
            return
        text = event_text(event)
        if text:
            self._last = now
            say(text)


def event_text(event: ProgressEvent) -> str:
    """The event in one line; empty where there is nothing to say."""
    progress = event.progress
    if event.row is not None and progress is not None:
        parts = [f"[{progress.done}/{progress.total}] {row_text(event.row, progress.metric)}"]
        return "  ".join(parts + outlook(progress))
    if event.kind == "stage" and progress is not None:
        return event.text or f"{progress.stage}: {progress.total} trainings"
    return event.text


def row_text(row: Row, metric: str) -> str:
    """`trial 2 PRUNED epoch 10/60 val/accuracy 0.4312 (reason)`."""
    parts = [row.label, row.state.value]
    if row.epochs:
        parts.append(f"epoch {row.epoch}/{row.epochs}")
    if row.score is not None:
        parts.append(f"{row.metric or metric} {row.score:.4f}")
    if row.reason:
        parts.append(f"({row.reason})")
    return " ".join(parts)


def outlook(progress: Progress) -> list[str]:
    """The best so far, the time left and the budget left, as far as they are known."""
    parts = []
    if progress.best is not None:
        label, score = progress.best
        parts.append(f"best {score:.4f} ({label})")
    if progress.seconds_left is not None and progress.done < progress.total:
        parts.append(f"about {duration(progress.seconds_left)} left")
    if progress.budget_left is not None:
        parts.append(f"{progress.budget_left} left")
    return parts


def duration(seconds: float) -> str:
    """`4m10s`, and `3h05m` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
