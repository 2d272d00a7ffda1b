"""The forest plot: the difference of each verdict with its interval."""

import pytest

from mlcl.report.plots.comparison_plots import forest_plot
from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.verdict import compare_arms


def arm(label, *searches):
    outcomes = tuple(tuple(Outcome(n, value) for n, value in enumerate(its)) for its in searches)
    return Arm(label, outcomes)


CONTROL = arm("control", (0.50, 0.52), (0.51, 0.51))
HEADS = arm("heads", (0.60, 0.62), (0.61, 0.62))


def verdict(reference, treated, mode="max"):
    return compare_arms(reference, treated, question="heads", metric="test/accuracy", mode=mode)


def test_each_verdict_has_its_difference_and_interval():
    found = [verdict(CONTROL, HEADS), verdict(HEADS, CONTROL)]
    plot = forest_plot(found)
    row, other = plot.table.to_dict("records")
    assert row["difference"] == pytest.approx(0.1025)
    assert (row["low"], row["high"]) == found[0].interval
    assert (row["pair"], other["pair"]) == ("heads against control", "control against heads")
    zero, interval, mark, *_ = plot.figure().axes[0].lines
    assert set(zero.get_xdata()) == {0}
    assert tuple(interval.get_xdata()) == (row["low"], row["high"])
    assert mark.get_xdata()[0] == row["difference"]
    assert "Right of the line is better" in plot.caption


def test_lower_is_better_is_right_of_the_line_too_and_undecided_marks_are_white():
    (row,) = forest_plot([verdict(CONTROL, HEADS, "min")]).table.to_dict("records")
    assert row["difference"] == pytest.approx(-0.1025)
    close = verdict(CONTROL, arm("heads", (0.50, 0.53), (0.52, 0.51)))
    mark = forest_plot([close]).figure().axes[0].lines[-1]
    assert close.answer == "cannot tell"
    assert mark.get_markerfacecolor() == "white"
