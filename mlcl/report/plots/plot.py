"""A plot of a report, with its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from plotly.graph_objects import Figure as Interactive


@dataclass(frozen=True)
class Plot:
    """A plot of a report.

    `name` is the stem of its files, `title` and `caption` are plain text, `table` has the data. Each call of
    `figure` draws it with matplotlib, and of `interactive` with plotly.
    """

    name: str
    title: str
    caption: str
    table: pd.DataFrame
    figure: Callable[[], Figure]
    interactive: Callable[[], Interactive]
