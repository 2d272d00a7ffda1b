"""A picture with the figures behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from plotly.graph_objects import Figure as Interactive


@dataclass(frozen=True)
class Plot:
    """One picture of a report.

    `name` is a file's stem, `title` and `caption` are plain text, `table` holds what is drawn, for readers
    and programs. `figure` draws it with matplotlib, `interactive` with plotly; both at every call anew.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]
    interactive: Callable[[], Interactive]
