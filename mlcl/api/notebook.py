"""Progress in a notebook: a bar below the cell."""

from __future__ import annotations

import html
import sys
from typing import Any

from mlcl.api.common import Say, print_line, silent
from mlcl.api.progress import outlook, plain_lines
from mlcl.service.engine.progress import ProgressEvent, ProgressListener

KERNEL = "ZMQInteractiveShell"
"""The name of the class of IPython's shell in the kernel of a notebook."""


def listener_of(progress: Say) -> ProgressListener:
    """Returns the listener of a sweep or table: a bar in a notebook by default, else lines for `progress`."""
    ipython = sys.modules.get("IPython")
    if progress is print_line and ipython and type(ipython.get_ipython()).__name__ == KERNEL:
        return NotebookBar(ipython.display)
    return plain_lines(progress or silent)


class NotebookBar:
    """A listener that redraws one bar: the stage, how many trainings ended, the best score, the time left.

    Args:
        display: The module `IPython.display`.
    """

    def __init__(self, display: Any) -> None:
        self._draw, self._bar = display.HTML, display.display(display.HTML(""), display_id=True)

    def __call__(self, event: ProgressEvent) -> None:
        """Redraws the bar."""
        its = event.progress
        if its is None:
            return
        text = html.escape("  ".join([f"{its.stage}: {its.done} of {its.total}", *outlook(its)]))
        self._bar.update(self._draw(f'<progress max="{its.total}" value="{its.done}"></progress> {text}'))
