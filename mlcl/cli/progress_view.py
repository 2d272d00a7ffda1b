"""How a command that trains many times shows what goes on: a live table, plain lines, or JSON lines."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mlcl.cli.output import is_interactive

if TYPE_CHECKING:
    from mlcl.service.engine.progress_events import ProgressListener


def progress_view(*, as_json: bool) -> AbstractContextManager[ProgressListener]:
    """The watcher that fits standard error, as a context manager."""
    from mlcl.cli.sweep_live import SweepTable
    from mlcl.cli.sweep_progress import PlainLines, print_event

    if as_json:
        return nullcontext(print_event)
    return SweepTable() if is_interactive() else nullcontext(PlainLines())
