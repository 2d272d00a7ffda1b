"""Progress of a sweep on a terminal: a table of its trainings that redraws itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mlcl.cli.output import errors, is_interactive
from mlcl.cli.sweep_progress import PlainLines, duration, event_text, outlook, print_event
from mlcl.cli.sweep_tables import drawn_text
from mlcl.service.engine.progress import Progress, ProgressEvent, ProgressListener, Row
from mlcl.tracking import State

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


class SweepTable:
    """A watcher that shows what runs, what ended last and what to expect. Use as a context manager.

    Notes and failures are printed above the table, where they stay.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told = clock()
        self._progress: Progress | None = None
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


def progress_view(*, as_json: bool) -> AbstractContextManager[ProgressListener]:
    """The watcher that fits standard error: JSON lines, this table on a terminal, else plain lines."""
    if as_json:
        return nullcontext(print_event)
    return SweepTable() if is_interactive() else nullcontext(PlainLines())


def _columns(progress: Progress, *, settings: bool) -> Table:
    table = Table(title=progress.stage, title_justify="left")
    for name in ("trial", "state"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("epoch", progress.metric.rpartition("/")[2], "time"):
        table.add_column(name, justify="right", no_wrap=True, overflow="ellipsis")
    if settings:
        table.add_column("settings", no_wrap=True, overflow="ellipsis")
    return table


def _add(table: Table, row: Row, seconds: float, wide: int) -> None:
    settings = [_cut(SECTIONS.sub("", drawn_text(row.settings))[:wide])] if wide else []
    table.add_row(
        _cut(row.label),
        _cut(row.state.value, STYLES.get(row.state, "")),
        f"{row.epoch}/{row.epochs}" if row.epochs else "",
        "" if row.score is None else f"{row.score:.4f}",
        duration(seconds),
        *settings,
    )


def _status(progress: Progress, hidden: int) -> str:
    running = f"{len(progress.running)} running" + (f" ({hidden} not shown)" if hidden else "")
    return "  ".join([f"{progress.done}/{progress.total} done", running, *outlook(progress)])


def _cut(text: str, style: str = "") -> Text:
    """One line that a narrow terminal cuts: a line that wraps would spoil the redraw."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
