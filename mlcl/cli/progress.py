"""Progress of a training, a sweep or a table: live on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mlcl.cli.output import duration, errors, is_interactive, say
from mlcl.results.documents import document
from mlcl.service.engine.progress import Progress as SweepProgress
from mlcl.service.engine.progress import ProgressEvent, ProgressListener, Row
from mlcl.tracking import State
from mlcl.training.events import Event

PLAIN_EVERY = 10.0
"""Seconds between plain lines while nothing else is said."""
REDRAWS_A_SECOND = 2.0
ENDED_SHOWN = 5
"""Trainings that ended last and stay in the table."""
AROUND = 8
"""Lines of the terminal that the rows leave free: title, header, borders, the line below, a prompt."""
BESIDE = 53
"""Columns of the terminal for all but labels and settings."""
SECTIONS = re.compile(r"\b(?:train|encoder|evaluation)\.")
"""Left out of the keys: there is little room."""
LEAST = 16
"""Fewest columns for settings: where fewer are left, they are not shown."""
STYLES = {State.COMPLETE: "green", State.FAILED: "red", State.PRUNED: "yellow"}


class RunProgress:
    """A listener that shows epoch, step, loss, throughput, time left. Use as a context manager."""

    def __init__(self) -> None:
        self._bar = _bar() if is_interactive() else None
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
        if not bar.tasks:
            bar.add_task("", total=event.steps, details="")
        if event.kind in ("note", "damage"):
            bar.console.print(event.note)
        what = f"epoch {event.epoch}/{event.epochs}" if event.kind != "phase" else event.note
        details = "  ".join(part for part in (self._loss, self._pace, _validation(event)) if part)
        bar.update(bar.tasks[0].id, completed=event.step, description=what, details=details)

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
        return f"{duration((time.monotonic() - began) / done * (event.steps - event.step))} left"


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


def progress_view(*, as_json: bool) -> AbstractContextManager[ProgressListener]:
    """The watcher that fits standard error: JSON lines, this table on a terminal, else plain lines."""
    if as_json:
        return nullcontext(print_event)
    return SweepTable() if is_interactive() else nullcontext(PlainLines())


def print_event(event: ProgressEvent) -> None:
    """A watcher that prints every event as one JSON object on a line of standard error."""
    errors.out(json.dumps(document(event), allow_nan=False), highlight=False)


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


def outlook(progress: SweepProgress) -> list[str]:
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


class SweepTable:
    """A watcher that shows what runs, what ended last and what to expect. Use as a context manager.

    Notes and failures are printed above the table, where they stay.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told = clock()
        self._progress: SweepProgress | None = None
        self._ended: tuple[Row, ...] = ()
        self._live = Live(
            console=errors,
            transient=True,
            refresh_per_second=REDRAWS_A_SECOND,
            get_renderable=self.render,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def __call__(self, event: ProgressEvent) -> None:
        """Takes the event in; the next redraw shows it."""
        row = event.row
        if event.kind == "stage":
            self._ended = ()
        if event.kind == "close" and row is not None:
            # A new tuple: the thread that redraws may be reading the old one.
            self._ended = (*self._ended, row)[-ENDED_SHOWN:]
        if event.progress is not None:
            self._told = self._clock()
            self._progress = event.progress
            self._live.start()
        if row is None or row.state is State.FAILED:
            text = event_text(event)
            if text:
                errors.print(text, markup=False)

    def render(self) -> RenderableType:
        """The table as of now."""
        progress = self._progress
        if progress is None:
            return ""
        room = max(1, self._live.console.height - AROUND)
        running = progress.running[:room]
        ended = self._ended[-(room - len(running)) :] if room > len(running) else ()
        since = self._clock() - self._told
        shown = (*ended, *running)
        wide = self._live.console.width - BESIDE - max((len(row.label) for row in shown), default=0)
        wide = wide if wide >= LEAST and any(row.settings for row in shown) else 0
        table = _columns(progress, settings=wide > 0)
        for row in ended:
            _add(table, row, row.seconds, wide)
        for row in running:
            _add(table, row, row.seconds + since, wide)
        hidden = len(progress.running) - len(running)
        return Group(table, _cut(_status(progress, hidden)))


def _columns(progress: SweepProgress, *, settings: bool) -> Table:
    table = Table(title=progress.stage, title_justify="left")
    for name in ("trial", "state"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("epoch", progress.metric.rpartition("/")[2], "time"):
        table.add_column(name, justify="right", no_wrap=True, overflow="ellipsis")
    if settings:
        table.add_column("settings", no_wrap=True, overflow="ellipsis")
    return table


def _add(table: Table, row: Row, seconds: float, wide: int) -> None:
    from mlcl.cli.sweep_tables import drawn_text

    settings = [_cut(SECTIONS.sub("", drawn_text(row.settings))[:wide])] if wide else []
    table.add_row(
        _cut(row.label),
        _cut(row.state.value, STYLES.get(row.state, "")),
        f"{row.epoch}/{row.epochs}" if row.epochs else "",
        "" if row.score is None else f"{row.score:.4f}",
        duration(seconds),
        *settings,
    )


def _status(progress: SweepProgress, hidden: int) -> str:
    running = f"{len(progress.running)} running" + (f" ({hidden} not shown)" if hidden else "")
    return "  ".join([f"{progress.done}/{progress.total} done", running, *outlook(progress)])


def _cut(text: str, style: str = "") -> Text:
    """One line that a narrow terminal cuts: a line that wraps would spoil the redraw."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
