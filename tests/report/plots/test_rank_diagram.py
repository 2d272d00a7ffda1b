"""The average-rank diagram: both libraries draw every method, bar and the critical difference."""

import pytest

from mlcl.report.plots.charts import to_svg
from mlcl.report.plots.comparison_plots import RankDiagram, rank_plot

NAMES = ("C4.5", "with m <b> $x$", "with cf", "with both")
DIAGRAM = RankDiagram(NAMES, (3.143, 2.0, 2.893, 1.964), ((3, 1, 2), (2, 0)), 1.25)


@pytest.fixture
def plot():
    return rank_plot("ranks-auc", "AUC", "What it shows.", DIAGRAM)


def test_the_table_has_the_best_first(plot):
    assert plot.table["method"].tolist() == [NAMES[place] for place in (3, 1, 2, 0)]
    assert plot.table["average rank"].tolist() == [1.964, 2.0, 2.893, 3.143]


def test_a_bar_joins_the_ranks_of_its_group(plot):
    axes = plot.figure().axes[0]
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
    assert [list(map(float, bar)) for bar in bars] == [
        pytest.approx([-2.893 - 0.04, -1.964 + 0.04]),
        pytest.approx([-3.143 - 0.04, -2.893 + 0.04]),
    ]
    (distance,) = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 2.5]
    assert distance[1] - distance[0] == pytest.approx(1.25)


def test_each_method_hangs_at_its_rank_and_the_best_on_top(plot):
    axes = plot.figure().axes[0]
    feet = {float(line.get_xdata()[0]): float(line.get_ydata()[-1]) for line in axes.lines
            if line.get_linewidth() == 0.9}  # fmt: skip
    assert sorted(feet, reverse=True) == [-1.964, -2.0, -2.893, -3.143]
    heights = [feet[rank] for rank in sorted(feet, reverse=True)]
    assert heights == sorted(heights, reverse=True)
    shown = {text.get_position()[1]: text.get_text() for text in axes.texts}
    assert [shown[height].split(" (")[0] for height in heights[::2]] == ["with both", "with cf"]


def test_names_are_text_and_no_markup(plot):
    assert "with m &lt;b&gt; $x$ (2.00)" in to_svg(plot.figure())
    assert "critical difference 1.25" in to_svg(plot.figure())
