"""Shows the progress of a training, a sweep or a table: live on a terminal, else as plain or JSON lines."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rich.console import Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

from mlcl.api.progress import TrainingLines, TrainingText, event_text, outlook, plain_lines
from mlcl.cli.output import errors, is_interactive, say
from mlcl.cli.sweep_tables import drawn_text
from mlcl.markup import duration
from mlcl.results.documents import document
from mlcl.service.engine.progress import Progress as SweepProgress
from mlcl.service.engine.progress import ProgressEvent, ProgressListener, Row
from mlcl.tracking import State
from mlcl.training.events import Event

REDRAWS_A_SECOND = 2.0
ENDED_SHOWN = 5
"""The number of trainings that ended last and are still shown in the table."""
AROUND = 8
"""The number of terminal lines for all but rows: title, header, borders, the line below, a prompt."""
BESIDE = 53
"""The number of terminal columns for all but labels and settings."""
SECTIONS = re.compile(r"\b(?:train|encoder|evaluation)\.")
"""The pattern of sections that are left out of keys, since the table is narrow."""
LEAST = 16
"""The smallest number of terminal columns for settings. If fewer are left, settings are not shown."""
STYLES = {State.COMPLETE: "green", State.FAILED: "red", State.PRUNED: "yellow"}


class RunProgress:
    """A listener and context manager that shows epoch, step, loss, throughput and time left of a training."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._text, self._lines = TrainingText(), TrainingLines(say)
        if is_interactive():
            counts = TextColumn("{task.completed}/{task.total} {task.fields[unit]}")
            details = TextColumn("{task.fields[details]}")
            columns = (TextColumn("{task.description}"), BarColumn(), counts, details)
            self._bar = Progress(*columns, TimeRemainingColumn(), console=errors, transient=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Shows an event."""
        if self._bar is None:
            self._lines(event)
        else:
            self._draw(event, self._bar)

    def _draw(self, event: Event, bar: Progress) -> None:
        if not bar.tasks:
            bar.add_task("", total=event.steps, unit="steps", details="")
        task, encodes = bar.tasks[0], event.kind == "encoding"
        if event.kind in ("note", "damage"):
            bar.console.print(event.note)
        label = event.note if event.kind == "phase" else f"epoch {event.epoch}/{event.epochs}"
        bar.update(
            task.id,
            total=event.steps or task.total,
            completed=event.step,
            description="encoding" if encodes else label,
            unit="rows" if encodes else "steps",
            details="  ".join(self._text.details(event)),
        )


def progress_view(*, as_json: bool) -> AbstractContextManager[ProgressListener]:
    """Returns a listener of a sweep or table that prints JSON lines, a live table, or plain lines."""
    if as_json:
        return nullcontext(print_event)
    return SweepTable() if is_interactive() else nullcontext(plain_lines(say))


def print_event(event: ProgressEvent) -> None:
    """Prints an event as one JSON object on a line of standard error."""
    errors.out(json.dumps(document(event), allow_nan=False), highlight=False)


class SweepTable(AbstractContextManager["SweepTable"]):
    """A listener and context manager that shows running and just ended trainings in a live table."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_update = clock()
        self._progress: SweepProgress | None = None
        self._ended_rows: tuple[Row, ...] = ()
        self._encoding = ""
        self._live = Live(
            console=errors,
            transient=True,
            refresh_per_second=REDRAWS_A_SECOND,
            get_renderable=self.render,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def __call__(self, event: ProgressEvent) -> None:
        """Records an event, which the next redraw shows."""
        row = event.row
        self._encoding = event.text if event.kind == "encoding" else ""
        if event.kind == "stage":
            self._ended_rows = ()
        if event.kind == "close" and row is not None:
            # The tuple is replaced, since the thread that redraws may be reading it.
            self._ended_rows = (*self._ended_rows, row)[-ENDED_SHOWN:]
        if event.progress is not None:
            self._last_update = self._clock()
            self._progress = event.progress
            self._live.start()
        if not self._encoding and (row is None or row.state is State.FAILED):
            text = event_text(event)
            if text:
                errors.print(text, markup=False)

    def render(self) -> RenderableType:
        """Draws the table in its present state."""
        progress = self._progress
        if progress is None:
            return ""
        if self._encoding:
            return Text(self._encoding, no_wrap=True, overflow="ellipsis")
        console = self._live.console
        room = max(1, console.height - AROUND)
        running_rows = progress.running[:room]
        ended_rows = self._ended_rows[-(room - len(running_rows)) :] if room > len(running_rows) else ()
        elapsed, rows = self._clock() - self._last_update, (*ended_rows, *running_rows)
        width = console.width - BESIDE - max((len(row.label) for row in rows), default=0)
        width = width if width >= LEAST and any(row.settings for row in rows) else 0
        table = Table(title=progress.stage, title_justify="left")
        numbers = ("epoch", progress.metric.rpartition("/")[2], "time")
        for name in ("trial", "state", *numbers, *(["settings"] if width else [])):
            justify: JustifyMethod = "right" if name in numbers else "left"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
        for row in rows:
            cells: list[str | Text] = [
                row.label,
                Text(row.state.value, style=STYLES.get(row.state, "")),
                f"{row.epoch}/{row.epochs}" if row.epochs else "",
                "" if row.score is None else f"{row.score:.4f}",
                duration(row.seconds + (elapsed if row in running_rows else 0)),
                *([SECTIONS.sub("", drawn_text(row.settings))[:width]] if width else []),
            ]
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
        hidden = len(progress.running) - len(running_rows)
        count = f"{len(progress.running)} running" + (f" ({hidden} not shown)" if hidden else "")
        status = "  ".join([f"{progress.done}/{progress.total} done", count, *outlook(progress)])
        # On a narrow terminal the line is cut, since a wrapped line would break the redraw.
        return Group(table, Text(status, no_wrap=True, overflow="ellipsis"))
