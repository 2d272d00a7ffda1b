"""Tests of drawn charts: their points, series that differ without colour, and texts that stay as they are."""

import numpy as np

from mlcl.report.plots import style
from mlcl.report.plots.charts import Axis, chart_plot, series, to_svg

MARKUP = "a_b $x_1$ <b>c</b> & d"
LINE = series("line", [1, 2, 4], [0.1, 0.5, 0.3], [0.1, 0.2, 0.1])
POINTS = series("points", [1, 3], [0.2, 0.6], texts=["first", "second"])


def chart(*rows, x="x", y="y", log=False):
    return chart_plot("name", "Title", "Caption", rows, Axis(x, log), Axis(y), points=("points",))


def drawn(*rows, **how):
    return chart(*rows, **how).figure().axes[0]


def lines(count):
    return [series(f"line {i}", [0, 1], [i, i + 1]) for i in range(count)]


def test_lines_have_their_points_and_a_band():
    axes = drawn(LINE, POINTS)
    for rows, line in zip((LINE, POINTS), axes.lines, strict=True):
        assert line.get_label() == rows["series"].iloc[0]
        assert line.get_xydata().tolist() == rows[["x", "y"]].to_numpy().tolist()
    edges = {*zip(LINE["x"], LINE["low"], strict=True), *zip(LINE["x"], LINE["high"], strict=True)}
    [band] = axes.collections
    assert {tuple(vertex) for vertex in band.get_paths()[0].vertices} == edges


def test_error_bars_end_at_low_and_high():
    bars = drawn(series("points", [0, 1], [0.5, 0.7], [0.1, 0.05])).collections[0].get_segments()
    np.testing.assert_allclose([segment[:, 1] for segment in bars], [[0.4, 0.6], [0.65, 0.75]])


def test_series_differ_without_colour_and_repeat_late():
    drawn_lines = drawn(*lines(6)).lines
    assert (
        len({line.get_marker() for line in drawn_lines})
        == len({str(line._dash_pattern) for line in drawn_lines})
        == 6
    )
    assert len({str(style.series_style(position)) for position in range(60)}) == 60


def test_a_series_with_a_meaning_has_its_colour_wherever_it_stands():
    best, other = series("best", [0, 1], [1, 2]), series("other", [0, 1], [2, 3])
    for rows in ((best, other), (other, best)):
        colours = {line.get_label(): line.get_color() for line in drawn(*rows).lines}
        assert colours["best"] == style.BEST


def test_logarithmic_axis_writes_its_numbers_out():
    figure = chart(series("s", [0.03, 1.0], [1, 2]), x="t", log=True).figure()
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "linear")
    svg = to_svg(figure)
    assert (">0.05<" in svg, ">0.1<" in svg) == (True, True)


def test_texts_are_drawn_as_they_are_and_the_same_chart_gives_the_same_file():
    rows = [series(f"{MARKUP} {i}", [0, 1], [1, 2], texts=[MARKUP, ""]) for i in range(2)]
    plot = chart(*rows, x=f"{MARKUP} x", y=f"{MARKUP} y")
    svg, escaped_markup = to_svg(plot.figure()), "a_b $x_1$ &lt;b&gt;c&lt;/b&gt; &amp; d"
    for end in ("x", "y", "0", "1"):
        assert f">{escaped_markup} {end}</text>" in svg
    assert to_svg(plot.figure()) == svg


def test_signs_that_no_font_of_matplotlib_has_stay_text_without_a_warning(recwarn):
    names = ("日本", "\N{GRINNING FACE}")
    svg = to_svg(chart(*(series(name, [0, 1], [0, 1]) for name in names)).figure())
    assert [name for name in names if name not in svg] == []
    assert [str(warning.message) for warning in recwarn] == []


def test_legend_of_many_lies_below_the_axes_and_inside_the_figure():
    figure = chart(*lines(14)).figure()
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    axes = figure.axes[0].get_window_extent()
    assert 0 <= legend.y0 < legend.y1 <= axes.y0
    assert axes.height > 150
    assert not chart(*lines(1)).figure().legends


def test_table_has_a_row_a_point_with_bands_and_texts_where_some_series_has_them():
    table = chart(series("a", [1, 0], [0.2, 0.3]), x="k", y="share").table
    assert table.to_dict("list") == {"series": ["a", "a"], "k": [1, 0], "share": [0.2, 0.3]}
    plot = chart(LINE, POINTS)
    assert (plot.name, plot.title, plot.caption) == ("name", "Title", "Caption")
    assert list(plot.table) == ["series", "x", "y", "low", "high", "text"]
    assert plot.table["x"].tolist() == [1, 2, 4, 1, 3]
    assert plot.table["high"].tolist()[:3] == LINE["high"].tolist()
    assert plot.table["low"].isna().tolist() == [False] * 3 + [True] * 2
    assert plot.table["text"].tolist()[3:] == ["first", "second"]
