"""A plot of a chart."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from mlcl.report.plots.chart import Axis, Chart, Series
from mlcl.report.plots.matplotlib_backend import draw
from mlcl.report.plots.plot import Plot


def chart_plot(name: str, title: str, caption: str, chart: Chart) -> Plot:
    """The chart as a plot. The columns of its table are series, x, y, and low, high, text as needed."""
    return Plot(name, title, caption, _table(chart), partial(draw, chart))


def _table(chart: Chart) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {
        "series": [series.name for series in chart.series for _ in series.x],
        chart.x.label: [_place(chart.x, x) for series in chart.series for x in series.x],
        chart.y.label: [_place(chart.y, y) for series in chart.series for y in series.y],
    }
    for column, given in (("low", "low"), ("high", "high"), ("text", "texts")):
        if any(getattr(series, given) is not None for series in chart.series):
            columns[column] = [value for series in chart.series for value in _values(series, given)]
    return pd.DataFrame(columns)


def _place(axis: Axis, position: float) -> Any:
    return axis.names[int(position)] if axis.names else position


def _values(series: Series, given: str) -> list[Any]:
    values = getattr(series, given)
    return [None] * len(series.x) if values is None else list(values)
