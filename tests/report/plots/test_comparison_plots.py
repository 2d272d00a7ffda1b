"""Tests of the forest plot of verdicts, and of the average-rank diagram with its critical difference."""

import pytest

from mlcl.report.plots.charts import to_svg
from mlcl.report.plots.comparison_plots import RankDiagram, forest_plot, rank_plot
from mlcl.significance.arms import Arm, Outcome
from mlcl.significance.verdict import compare_arms


def arm(label, *searches):
    outcomes = tuple(tuple(Outcome(n, value) for n, value in enumerate(values)) for values in searches)
    return Arm(label, outcomes)


CONTROL = arm("control", (0.50, 0.52), (0.51, 0.51))
HEADS = arm("heads", (0.60, 0.62), (0.61, 0.62))


def verdict(reference, treated, mode="max"):
    return compare_arms(reference, treated, question="heads", metric="test/accuracy", mode=mode)


def test_each_verdict_has_its_difference_and_interval():
    verdicts = [verdict(CONTROL, HEADS), verdict(HEADS, CONTROL)]
    plot = forest_plot(verdicts)
    row, other = plot.table.to_dict("records")
    assert row["difference"] == pytest.approx(0.1025)
    assert (row["low"], row["high"]) == verdicts[0].interval
    assert (row["pair"], other["pair"]) == ("heads against control", "control against heads")
    zero, interval, mark, *_ = plot.figure().axes[0].lines
    assert set(zero.get_xdata()) == {0}
    assert tuple(interval.get_xdata()) == (row["low"], row["high"])
    assert mark.get_xdata()[0] == row["difference"]
    assert "Right of the line is better" in plot.caption


def test_lower_is_better_is_right_of_the_line_too_and_undecided_marks_are_white():
    (row,) = forest_plot([verdict(CONTROL, HEADS, "min")]).table.to_dict("records")
    assert row["difference"] == pytest.approx(-0.1025)
    close_verdict = verdict(CONTROL, arm("heads", (0.50, 0.53), (0.52, 0.51)))
    mark = forest_plot([close_verdict]).figure().axes[0].lines[-1]
    assert close_verdict.answer == "cannot tell"
    assert mark.get_markerfacecolor() == "white"


NAMES = ("C4.5", "with m <b> $x$", "with cf", "with both")
DIAGRAM = RankDiagram(NAMES, (3.143, 2.0, 2.893, 1.964), ((3, 1, 2), (2, 0)), 1.25)


@pytest.fixture
def ranks():
    return rank_plot("ranks-auc", "AUC", "What it shows.", DIAGRAM)


def test_the_table_has_the_best_first(ranks):
    assert ranks.table["method"].tolist() == [NAMES[place] for place in (3, 1, 2, 0)]
    assert ranks.table["average rank"].tolist() == [1.964, 2.0, 2.893, 3.143]


def test_a_bar_joins_the_ranks_of_its_group(ranks):
    axes = ranks.figure().axes[0]
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
    assert [list(map(float, bar)) for bar in bars] == [
        pytest.approx([-2.893 - 0.04, -1.964 + 0.04]),
        pytest.approx([-3.143 - 0.04, -2.893 + 0.04]),
    ]
    (distance,) = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 2.5]
    assert distance[1] - distance[0] == pytest.approx(1.25)


def test_each_method_hangs_at_its_rank_and_the_best_on_top(ranks):
    axes = ranks.figure().axes[0]
    feet = {float(line.get_xdata()[0]): float(line.get_ydata()[-1]) for line in axes.lines
            if line.get_linewidth() == 0.9}  # fmt: skip
    assert sorted(feet, reverse=True) == [-1.964, -2.0, -2.893, -3.143]
    heights = [feet[rank] for rank in sorted(feet, reverse=True)]
    assert heights == sorted(heights, reverse=True)
    labels = {text.get_position()[1]: text.get_text() for text in axes.texts}
    assert [labels[height].split(" (")[0] for height in heights[::2]] == ["with both", "with cf"]


def test_names_are_text_and_no_markup(ranks):
    assert "with m &lt;b&gt; $x$ (2.00)" in to_svg(ranks.figure())
    assert "critical difference 1.25" in to_svg(ranks.figure())
