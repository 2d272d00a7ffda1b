"""Progress as lines of text, of one training or of a sweep or table, and as a bar in a notebook."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from typing import Any

from mlcl.api.common import Say, print_line, say_of
from mlcl.markup import duration
from mlcl.service.engine.progress import Progress, ProgressEvent, ProgressListener, Row
from mlcl.training.events import Event

PLAIN_EVERY = 10.0
"""The least number of seconds between two lines on the steps of running trainings."""
REDRAW_EVERY = 0.5
"""Seconds between two updates of a notebook's bar by steps."""


class TrainingText:
    """The latest loss, throughput and validation of a training as texts."""

    def __init__(self) -> None:
        self._latest_texts = {"loss": "", "pace": ""}

    def details(self, event: Event) -> list[str]:
        """Updates the texts from an event, and returns the texts that are known so far."""
        metrics = event.metrics
        if "train/loss" in metrics:
            self._latest_texts["loss"] = f"loss {metrics['train/loss']:.4f}"
        if "train/rows_per_second" in metrics:
            self._latest_texts["pace"] = f"{metrics['train/rows_per_second']:,.0f} rows/s"
        # The first metric on validation is the job's `evaluation.metric`.
        scores = (f"{name} {value:.4f}" for name, value in metrics.items() if "val/" in name)
        validation = next(scores, "") if event.kind == "validation" else ""
        return [text for text in (*self._latest_texts.values(), validation) if text]


class TrainingLines:
    """A listener of one training that writes a line for each validation, and a few for its steps.

    If a `bar` is given, it shows steps and validations instead.
    """

    def __init__(self, write: Callable[[str], None], bar: NotebookBar | None = None) -> None:
        self._write, self._bar, self._text = write, bar, TrainingText()
        self._start_point: tuple[float, int] | None = None
        self._last_time = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Shows an event, unless it is a checkpoint, or a step or encoding too soon after the last one."""
        now, details = time.monotonic(), self._text.details(event)
        start_time, first_step = self._start_point = self._start_point or (now, event.step)
        interval = PLAIN_EVERY if self._bar is None else REDRAW_EVERY
        too_soon = event.kind in ("step", "encoding") and now - self._last_time < interval
        if event.kind == "saving" or too_soon:
            return
        self._last_time = now
        if event.kind == "encoding":
            self._start_point = None  # the training has its own estimate of the time left
            if self._bar is None:
                self._write(event.note)
            else:
                self._bar.redraw(event.step, event.steps, event.note)
        elif event.kind in ("phase", "start", "note", "damage"):
            training = f"training {event.epochs} epochs, {event.steps} steps" if event.epochs else ""
            if event.note or training:
                self._write(event.note or training)
        elif event.kind in ("step", "validation"):
            done = event.step - first_step
            if done > 0:
                seconds = (now - start_time) / done * (event.steps - event.step)
                details.insert(len(details) - (event.kind == "validation"), f"{duration(seconds)} left")
            position = (f"epoch {event.epoch}/{event.epochs}", f"step {event.step}/{event.steps}")
            if self._bar is None:
                self._write("  ".join((*position, *details)))
            else:
                self._bar.redraw(event.step, event.steps, "  ".join((*position, *details)))


def plain_lines(
    write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> ProgressListener:
    """Returns a listener that writes a line for each training that ends, and a few for running ones."""
    last_time = clock()

    def watch(event: ProgressEvent) -> None:
        nonlocal last_time
        too_soon = event.kind in ("begin", "rung", "encoding") and clock() - last_time < PLAIN_EVERY
        text = "" if too_soon else event_text(event)
        if text:
            last_time = clock()
            write(text)

    return watch


def event_text(event: ProgressEvent) -> str:
    """Returns a progress event as one line of text; empty where nothing is to be printed."""
    progress = event.progress
    if event.row is not None and progress is not None:
        parts = [f"[{progress.done}/{progress.total}] {row_text(event.row, progress.metric)}"]
        return "  ".join(parts + outlook(progress))
    if event.kind == "stage" and progress is not None:
        return event.text or f"{progress.stage}: {progress.total} trainings"
    return event.text


def row_text(row: Row, metric: str) -> str:
    """Returns a training as text, such as `trial 2 PRUNED epoch 10/60 val/accuracy 0.4312 (reason)`."""
    parts = [row.label, row.state.value]
    if row.epochs:
        parts.append(f"epoch {row.epoch}/{row.epochs}")
    if row.score is not None:
        parts.append(f"{row.metric or metric} {row.score:.4f}")
    if row.reason:
        parts.append(f"({row.reason})")
    return " ".join(parts)


def outlook(progress: Progress) -> list[str]:
    """Returns texts on the best score so far, the time left and the budget left, each where it is known."""
    parts = []
    if progress.best is not None:
        label, score = progress.best
        parts.append(f"best {score:.4f} ({label})")
    if progress.seconds_left is not None and progress.done < progress.total:
        parts.append(f"about {duration(progress.seconds_left)} left")
    if progress.budget_left is not None:
        parts.append(f"{progress.budget_left} left")
    return parts


KERNEL = "ZMQInteractiveShell"
"""The name of the class of IPython's shell in the kernel of a notebook."""


def listener_of(progress: Say) -> ProgressListener:
    """Returns the listener of a sweep or table: a bar in a notebook by default, else lines for `progress`."""
    bar = notebook_bar(progress)
    if bar is None:
        return plain_lines(say_of(progress))

    def watch(event: ProgressEvent) -> None:
        snapshot = event.progress
        if snapshot is not None:
            text = "  ".join([f"{snapshot.stage}: {snapshot.done} of {snapshot.total}", *outlook(snapshot)])
            bar.redraw(snapshot.done, snapshot.total, event.text if event.kind == "encoding" else text)
        elif event.text:
            print_line(event.text)

    return watch


def training_listener(progress: Say) -> TrainingLines:
    """Returns the listener of one training: a bar in a notebook by default, else lines for `progress`."""
    return TrainingLines(say_of(progress), notebook_bar(progress))


def notebook_bar(progress: Say) -> NotebookBar | None:
    """Returns a new bar in a notebook if `progress` is the default; otherwise None."""
    ipython = sys.modules.get("IPython")
    if progress is print_line and ipython and type(ipython.get_ipython()).__name__ == KERNEL:
        return NotebookBar(ipython.display)
    return None


class NotebookBar:
    """A bar with a text, redrawn by `IPython.display`."""

    def __init__(self, display: Any) -> None:
        self._to_html, self._bar = display.HTML, display.display(display.HTML(""), display_id=True)

    def redraw(self, done: int, total: int, text: str) -> None:
        """Shows that `done` of `total` are done, with a text beside the bar."""
        self._bar.update(
            self._to_html(f'<progress max="{total}" value="{done}"></progress> {html.escape(text)}')
        )
