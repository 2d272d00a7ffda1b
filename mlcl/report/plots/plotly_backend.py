"""Draws charts with plotly, for zooming and hovering."""

from __future__ import annotations

from plotly.graph_objects import Bar, Figure, Scatter

from mlcl.report.plots import style
from mlcl.report.plots.chart import Axis, Chart, Series

_NUMBERS = [float(f"{digit}e{power}") for power in range(-9, 10) for digit in (1, 2, 5)]
LOG = {"type": "log", "tickvals": _NUMBERS, "ticktext": [f"{number:g}" for number in _NUMBERS]}
"""The options of a logarithmic axis with its numbers written out."""


def draw_interactive(chart: Chart) -> Figure:
    """The chart as a figure that shows the text of a point on hovering."""
    figure = Figure()
    for position, series in enumerate(chart.series):
        look = style.series_style(position)
        if series.kind == "line" and series.low is not None and series.high is not None:
            figure.add_trace(_band(series, look))
        figure.add_trace(_bars(series, look) if series.kind == "bars" else _marks(series, look))
    figure.update_xaxes(**_scale(chart.x))
    figure.update_yaxes(**_scale(chart.y))
    return apply_style(figure, legend=len(chart.series) > 1)


def apply_style(figure: Figure, legend: bool = False) -> Figure:
    """Sets the common style: a white background and the legend below the axes."""
    figure.update_layout(
        template="plotly_white",
        font={"size": style.FONT_SIZE + 2},
        margin={"l": 60, "r": 20, "t": 30, "b": 60},
        barmode="group",
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0},
    )
    return figure


def _marks(series: Series, look: style.SeriesStyle) -> Scatter:
    size = 9 if series.kind == "line" or len(series.x) < style.CLOUD else 5
    return Scatter(
        x=list(series.x),
        y=list(series.y),
        mode="lines+markers" if series.kind == "line" else "markers",
        name=style.as_html(series.name),
        legendgroup=style.as_html(series.name),
        line={"color": look.colour, "dash": look.strokes, "width": style.LINE_WIDTH},
        marker={"color": look.colour, "symbol": look.marker[1], "size": size},
        error_y=_errors(series) if series.kind == "points" else None,
        hovertext=_texts(series),
    )


def _bars(series: Series, look: style.SeriesStyle) -> Bar:
    return Bar(
        x=list(series.x),
        y=list(series.y),
        name=style.as_html(series.name),
        error_y=_errors(series),
        hovertext=_texts(series),
        marker={
            "color": look.shade(style.FILL),
            "line": {"color": look.colour, "width": 1},
            "pattern": {"shape": look.hatch[1], "fgcolor": look.colour, "size": 6},
        },
    )


def _band(series: Series, look: style.SeriesStyle) -> Scatter:
    """The band of a line as a polygon, which is hidden with the line."""
    assert series.low is not None
    assert series.high is not None
    return Scatter(
        x=[*series.x, *reversed(series.x)],
        y=[*series.high, *reversed(series.low)],
        fill="toself",
        fillcolor=look.shade(style.BAND),
        line={"width": 0},
        mode="lines",
        legendgroup=style.as_html(series.name),
        showlegend=False,
        hoverinfo="skip",
    )


def _errors(series: Series) -> dict[str, object] | None:
    if series.low is None or series.high is None:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - y for y, high in zip(series.y, series.high, strict=True)],
        "arrayminus": [y - low for y, low in zip(series.y, series.low, strict=True)],
    }


def _texts(series: Series) -> list[str] | None:
    return None if series.texts is None else [style.as_html(text) for text in series.texts]


def _scale(axis: Axis) -> dict[str, object]:
    scale: dict[str, object] = {"title": style.as_html(axis.label)}
    if axis.names:
        names = [style.as_html(name) for name in axis.names]
        scale |= {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": names}
    elif axis.log:
        scale |= LOG
    return scale
