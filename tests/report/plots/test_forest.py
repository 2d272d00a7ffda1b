"""The forest plot: differences with their intervals, what is far off as a number at the edge."""

import pytest

from mlcl.report.plots.comparison_plots import forest_plot
from mlcl.results.comparison import compare_settings
from mlcl.results.settings import ComparedSetting, SeedRun


def setting(label, *values, job=None):
    runs = {
        seed: SeedRun(f"{label}{seed}", seed, "data", {"test/accuracy": value})
        for seed, value in enumerate(values)
    }
    return ComparedSetting(label, label, runs, job or {"x": label})


def test_each_setting_has_its_difference_and_interval():
    found = compare_settings(
        [setting("base", 0.50, 0.52, 0.51), setting("ours", 0.53, 0.56, 0.55)], "test/accuracy"
    )
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
    majority = setting("majority", 0.01, 0.01, 0.01, job={"baseline": "majority"})
    found = compare_settings(
        [setting("base", 0.50, 0.52, 0.51), setting("ours", 0.53, 0.56, 0.55), majority], "test/accuracy"
    )
    axes = forest_plot(found).figure().axes[0]
    assert axes.get_xlim()[0] > -0.2
    assert [text.get_text() for text in axes.texts] == ["\N{LEFTWARDS ARROW} -0.500"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours", "majority"]
