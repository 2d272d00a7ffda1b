"""Progress of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mlcl.cli.output import errors, is_interactive, say
from mlcl.training.events import Event

PLAIN_EVERY = 10.0
"""Seconds between plain lines while nothing else is said."""


class RunProgress:
    """A listener that shows epoch, step, loss, throughput, time left. Use as a context manager."""

    def __init__(self) -> None:
        self._bar = _bar() if is_interactive() else None
        self._task: TaskID | None = None
        self._loss = ""
        self._pace = ""
        self._began: tuple[float, int] | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Shows an event."""
        self._remember(event)
        if self._bar is not None:
            self._draw(event, self._bar)
        else:
            self._plain(event)

    def _remember(self, event: Event) -> None:
        if self._began is None:
            self._began = (time.monotonic(), event.step)
        if "train/loss" in event.metrics:
            self._loss = f"loss {event.metrics['train/loss']:.4f}"
        if "train/rows_per_second" in event.metrics:
            self._pace = f"{event.metrics['train/rows_per_second']:,.0f} rows/s"

    def _draw(self, event: Event, bar: Progress) -> None:
        if self._task is None:
            self._task = bar.add_task("", total=event.steps, completed=event.step, details="")
        if event.kind in ("note", "damage"):
            bar.console.print(event.note)
        what = f"epoch {event.epoch}/{event.epochs}" if event.kind != "phase" else event.note
        details = "  ".join(part for part in (self._loss, self._pace, _validation(event)) if part)
        bar.update(self._task, completed=event.step, description=what, details=details)

    def _plain(self, event: Event) -> None:
        now = time.monotonic()
        quiet = event.kind == "step" and now - self._last_line < PLAIN_EVERY
        if quiet or event.kind == "saving":
            return
        self._last_line = now
        if event.kind in ("phase", "start", "note", "damage"):
            training = f"training {event.epochs} epochs, {event.steps} steps" if event.epochs else ""
            if event.note or training:
                say(event.note or training)
        elif event.kind in ("step", "validation"):
            parts = [f"epoch {event.epoch}/{event.epochs}", f"step {event.step}/{event.steps}"]
            parts += [self._loss, self._pace, self._left(event), _validation(event)]
            say("  ".join(filter(None, parts)))

    def _left(self, event: Event) -> str:
        assert self._began is not None
        began, first = self._began
        done = event.step - first
        if done < 1:
            return ""
        seconds = (time.monotonic() - began) / done * (event.steps - event.step)
        return f"{int(seconds // 60)}m{int(seconds % 60):02d}s left"


def _validation(event: Event) -> str:
    """The first validation figure of an event, which is the task's leading one."""
    found = next((item for item in event.metrics.items() if "val/" in item[0]), None)
    return f"{found[0]} {found[1]:.4f}" if found and event.kind == "validation" else ""


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps"),
        TextColumn("{task.fields[details]}"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    )
