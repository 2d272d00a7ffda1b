"""Tests of the figures of cells, with a panel per group, a line per cell and a number per distant value."""

import pytest

from mlcl.report.plots.charts import to_svg
from mlcl.report.table_plots import CellPoint, draw_cells

ROWS = [
    CellPoint(*row)
    for row in [
        ("Hotel", "most frequent", 10.0, 10.0, 10.0),
        ("Hotel", "CE", 70.0, 69.0, 71.0, 72.0),
        ("Hotel", "MLCL $x$ <b>", 71.5, 71.0, 72.0, 73.0),
        ("Hotel", "knn", 70.5, 70.0, 71.0),
        ("Beer", "CE", 50.0, 48.0, 52.0),
        ("Beer", "knn", 51.0, 50.5, 51.5),
        ("Wine", "CE", 40.0, 40.0, 40.0),
    ]
]


@pytest.fixture
def figure():
    return draw_cells(ROWS, "accuracy")


def panel(figure, title):
    return next(axes for axes in figure.axes if axes.get_title() == title)


@pytest.mark.parametrize("groups", [["Hotel", "Beer"], ["Wine"]])
def test_panels_side_by_side_have_the_same_lines_and_no_empty_one(figure, groups):
    names = list(dict.fromkeys(row.cell for row in ROWS if row.group in groups))
    tick_labels = [
        label.get_text().replace("\\$", "$") for label in panel(figure, groups[0]).get_yticklabels()
    ]
    assert tick_labels == names
    for group in groups:
        dots = [line for line in panel(figure, group).lines if line.get_marker() == "o"]
        near_rows = [row for row in ROWS if row.group == group and row.mean > 20]
        points = {tuple(line.get_xydata()[0]) for line in dots}
        assert points == {(row.mean, names.index(row.cell)) for row in near_rows}


def test_intervals_and_printed_values(figure):
    axes = panel(figure, "Hotel")
    ends = {tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2}
    assert ends == {(69.0, 71.0), (71.0, 72.0), (70.0, 71.0)}
    assert {float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "s"} == {72.0, 73.0}


def test_what_is_far_out_squeezes_nothing(figure):
    axes = panel(figure, "Hotel")
    low, high = axes.get_xlim()
    assert 60 < low < 69
    assert 73 < high < 80
    assert [(text.get_text(), text.get_position()[1]) for text in axes.texts] == [("\u2190 10.0", 0)]


def test_a_panel_of_one_point_has_an_axis(figure):
    low, high = panel(figure, "Wine").get_xlim()
    assert low < 40 < high


def test_names_are_drawn_as_they_are(figure):
    assert ">MLCL $x$ &lt;b&gt;</text>" in to_svg(figure)
