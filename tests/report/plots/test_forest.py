"""The forest plot: differences with their intervals, what is far off as a number at the edge."""

import pytest
from report.made_up_runs import made_up_setting

from mlcl.report.plots.comparison_plots import forest_plot
from mlcl.results.comparison import compare_settings

BASE = made_up_setting("base", {0: 0.50, 1: 0.52, 2: 0.51})
OURS = made_up_setting("ours", {0: 0.53, 1: 0.56, 2: 0.55})


def test_each_setting_has_its_difference_and_interval():
    found = compare_settings([BASE, OURS], "test/accuracy")
    plot = forest_plot(found)
    (row,) = plot.table.to_dict("records")
    assert row["difference"] == pytest.approx(0.11 / 3)
    assert (row["low"], row["high"]) == found.rows[0].paired.interval
    zero, interval, mark = plot.figure().axes[0].lines
    assert set(zero.get_xdata()) == {0}
    assert tuple(interval.get_xdata()) == (row["low"], row["high"])
    assert mark.get_xdata()[0] == row["difference"]
    assert "Right of the line is better." in plot.caption


def test_a_fitted_baseline_far_off_is_a_number_at_the_edge():
    majority = made_up_setting("majority", dict.fromkeys(range(3), 0.01), {"baseline": "majority"})
    axes = forest_plot(compare_settings([BASE, OURS, majority], "test/accuracy")).figure().axes[0]
    assert axes.get_xlim()[0] > -0.2
    assert [text.get_text() for text in axes.texts] == ["\N{LEFTWARDS ARROW} -0.500"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours", "majority"]
