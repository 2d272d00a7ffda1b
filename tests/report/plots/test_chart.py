"""A chart as it is drawn: its points, told apart without colour, texts as they are."""

import numpy as np

from mlcl.report.plots import style
from mlcl.report.plots.charts import Axis, Chart, Series, chart_plot, draw, to_svg

MARKUP = "a_b $x_1$ <b>c</b> & d"
LINE = Series("line", "line", [1, 2, 4], [0.1, 0.5, 0.3], [0.0, 0.4, 0.2], [0.2, 0.7, 0.4])
POINTS = Series("points", "points", [1, 3], [0.2, 0.6], texts=["first", "second"])


def lines(count):
    return Chart(
        Axis("x"), Axis("y"), tuple(Series(f"line {i}", "line", [0, 1], [i, i + 1]) for i in range(count))
    )


def test_lines_and_clouds_have_their_points():
    chart = Chart(Axis("x"), Axis("y"), (LINE, POINTS))
    axes = draw(chart).axes[0]
    for series, drawn in zip(chart.series, axes.lines, strict=True):
        assert drawn.get_label() == series.name
        assert drawn.get_xydata().tolist() == [[x, y] for x, y in zip(series.x, series.y, strict=True)]


def test_the_band():
    chart = Chart(Axis("x"), Axis("y"), (LINE,))
    edges = {*zip(LINE.x, LINE.low, strict=True), *zip(LINE.x, LINE.high, strict=True)}
    [band] = draw(chart).axes[0].collections
    assert {tuple(vertex) for vertex in band.get_paths()[0].vertices} == edges


def test_error_bars_end_at_low_and_high():
    series = Series("runs", "points", [0, 1], [0.5, 0.7], [0.4, 0.65], [0.9, 0.75])
    chart = Chart(Axis("k"), Axis("y"), (series,))
    bars = draw(chart).axes[0].collections[0].get_segments()
    np.testing.assert_allclose([segment[:, 1] for segment in bars], [[0.4, 0.9], [0.65, 0.75]])


def test_series_differ_without_colour():
    drawn = draw(lines(6)).axes[0].lines
    assert len({line.get_marker() for line in drawn}) == 6
    assert len({str(line._dash_pattern) for line in drawn}) == 6


def test_a_series_with_a_meaning_has_its_colour_wherever_it_stands():
    best = Series("best", "points", [0, 1], [1, 2])
    other = Series("other", "points", [0, 1], [2, 3])
    for series in ((best, other), (other, best)):
        drawn = {
            line.get_label(): line.get_color()
            for line in draw(Chart(Axis("x"), Axis("y"), series)).axes[0].lines
        }
        assert drawn["best"] == style.BEST


def test_looks_repeat_late():
    looks = [style.series_style(position) for position in range(60)]
    assert len({str(look) for look in looks}) == 60


def test_logarithmic_axis_writes_its_numbers_out():
    chart = Chart(Axis("t", log=True), Axis("y"), (Series("s", "points", [0.03, 1.0], [1, 2]),))
    figure = draw(chart)
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].get_yscale() == "linear"
    svg = to_svg(figure)
    assert ">0.05<" in svg
    assert ">0.1<" in svg


def test_texts_are_drawn_as_they_are():
    series = tuple(Series(f"{MARKUP} {i}", "points", [0, 1], [1, 2], texts=[MARKUP, ""]) for i in range(2))
    chart = Chart(Axis(f"{MARKUP} x"), Axis(f"{MARKUP} y"), series)
    svg, written = to_svg(draw(chart)), "a_b $x_1$ &lt;b&gt;c&lt;/b&gt; &amp; d"
    for end in ("x", "y", "0", "1"):
        assert f">{written} {end}</text>" in svg


def test_same_chart_gives_the_same_file():
    chart = Chart(Axis("x"), Axis("y"), (LINE, POINTS))
    assert to_svg(draw(chart)) == to_svg(draw(chart))


def test_legend_of_many_lies_below_the_axes_and_inside_the_figure():
    figure = draw(lines(14))
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    axes = figure.axes[0].get_window_extent()
    assert 0 <= legend.y0 < legend.y1 <= axes.y0
    assert axes.height > 150
    assert not draw(lines(1)).legends


def test_table_has_a_row_a_point():
    chart = Chart(Axis("k"), Axis("share"), (Series("a", "points", [1, 0], [0.2, 0.3]),))
    table = chart_plot("n", "t", "c", chart).table
    assert table.to_dict("list") == {"series": ["a", "a"], "k": [1, 0], "share": [0.2, 0.3]}


def test_table_has_bands_and_texts_where_some_series_has_them():
    plot = chart_plot("name", "Title", "Caption", Chart(Axis("x"), Axis("y"), (LINE, POINTS)))
    assert (plot.name, plot.title, plot.caption) == ("name", "Title", "Caption")
    assert list(plot.table) == ["series", "x", "y", "low", "high", "text"]
    assert plot.table["x"].tolist() == [1, 2, 4, 1, 3]
    assert plot.table["high"].tolist()[:3] == LINE.high
    assert plot.table["low"].isna().tolist() == [False] * 3 + [True] * 2
    assert plot.table["text"].tolist()[3:] == POINTS.texts
    assert plot.figure() is not plot.figure()
