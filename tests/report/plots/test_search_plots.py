"""Tests of the plots of a search: their tables against the frame, and their pictures."""

import warnings

import matplotlib
import pytest
from matplotlib import pyplot

from mlcl.config import Goal
from mlcl.report.plots import style
from mlcl.report.plots.charts import to_svg
from mlcl.report.plots.search_plots import history_plot, search_plots

TWO = (Goal("score", "max"), Goal("val/loss", "min"))


def plots_of(data):
    plots, skipped = search_plots(data)
    return {plot.name: plot for plot in plots}, dict(skipped)


def test_every_plot_draws_without_a_warning(search_of):
    plots, skipped = plots_of(search_of(30, heads=("section", "chapter"), goals=TWO))
    assert not skipped
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for plot in plots.values():
            assert to_svg(plot.figure()).startswith("<?xml")
            assert plot.title
            assert plot.caption
            assert len(plot.table)
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before


def test_history_has_the_final_scores_alone_and_the_best_so_far(search_of):
    data = search_of()
    table = history_plot(data).table
    complete_rows = table[table["series"] == "complete"]
    assert complete_rows["trial"].tolist() == data.complete_trials["number"].tolist()
    assert complete_rows["val/accuracy"].tolist() == data.complete_trials["score"].tolist()
    best = table[table["series"] == "best"]["val/accuracy"].tolist()
    assert best == [max(data.complete_trials["score"].iloc[: n + 1]) for n in range(len(best))]


def test_history_of_a_minimised_score(search_of):
    data = search_of(goals=(Goal("val/loss", "min"),))
    table = history_plot(data).table
    assert table["val/accuracy"].iloc[-1] == data.complete_trials["score"].min()


def test_pareto_table_says_what_is_on_the_front(search_of):
    data = search_of(goals=TWO)
    plot = plots_of(data)[0]["pareto"]
    for _, row in plot.table.iterrows():
        beaten = any(
            other["score"] >= row["score"] and other["val/loss"] <= row["val/loss"]
            for _, other in plot.table.iterrows()
            if other["trial"] != row["trial"]
        )
        assert row["on the front"] == (not beaten)
    point_counts = {line.get_label(): len(line.get_xdata()) for line in plot.figure().axes[0].lines}
    assert point_counts["on the front"] == plot.table["on the front"].sum()


def test_three_goals_are_drawn_in_pairs(search_of):
    plots, _ = plots_of(search_of(goals=(*TWO, Goal("encoder.width", "min"))))
    axes = [plots[f"pareto_{number}"].figure().axes[0] for number in (1, 2, 3)]
    labels = [(panel.get_xlabel(), panel.get_ylabel()) for panel in axes]
    assert labels == [("score", "val/loss"), ("score", "encoder.width"), ("val/loss", "encoder.width")]


PRUNED, NONE = (lambda frame: frame.assign(state="PRUNED")), (lambda frame: frame.iloc[:0])


@pytest.mark.parametrize(
    ("trials", "change", "reasons"),
    [(1, lambda frame: frame, {"history": "its values are all the same", "pareto": "there is one goal",
                               "response": "no number differs between complete trials"}),
     (5, PRUNED, dict.fromkeys(("history", "response", "gamma"), "no trial is complete")),
     (1, NONE, dict.fromkeys(("history", "response", "gamma"), "no trial is complete"))],
    ids=["one trial", "no complete trial", "no trial"],
)  # fmt: skip
def test_what_cannot_be_drawn_is_left_out_with_its_reason(search_of, trials, change, reasons):
    plots, skipped = plots_of(search_of(trials, change=change))
    assert skipped.items() >= reasons.items()
    assert not plots
    assert len(skipped) == 4


def test_very_many_trials_are_drawn_as_an_image(search_of, monkeypatch):
    def with_images():
        images = {name: to_svg(plot.figure()) for name, plot in plots_of(search_of(30))[0].items()}
        return {name for name, image in images.items() if "data:image/png" in image}

    assert with_images() == set()
    monkeypatch.setattr(style, "MOST_SHAPES", 10)
    assert {"history", "gamma"} <= with_images()


def test_of_trials_of_several_searches_with_one_number_one_is_the_best(search_of):
    data = search_of(change=lambda frame: frame.assign(number=(frame["number"] % 5).astype("Int64")))
    tables = [plot.table for plot in plots_of(data)[0].values() if "state" in plot.table]
    assert {list(table["state"]).count("best") for table in tables} == {1}
