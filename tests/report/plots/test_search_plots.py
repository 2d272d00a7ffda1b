"""The plots of a search: their tables against the frame, and their pictures."""

import warnings

import matplotlib
import pytest
from matplotlib import pyplot

from mlcl.config import Goal
from mlcl.report.plots.matplotlib_backend import to_svg
from mlcl.report.plots.search_plots import history_plot
from mlcl.report.sweep_plots import search_plots

TWO = (Goal("score", "max"), Goal("val/loss", "min"))
TAU = "objective.heads.section.temperature"


def plots_of(data):
    plots, left_out = search_plots(data)
    return {plot.name: plot for plot in plots}, dict(left_out)


def test_every_plot_draws_without_a_warning(search_of):
    plots, left_out = plots_of(search_of(30, heads=("section", "chapter"), goals=TWO))
    assert not left_out
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
    shown = table[table["series"] == "complete"]
    assert shown["trial"].tolist() == data.complete["number"].tolist()
    assert shown["val/accuracy"].tolist() == data.complete["score"].tolist()
    best = table[table["series"] == "best"]["val/accuracy"].tolist()
    assert best == [max(data.complete["score"].iloc[: n + 1]) for n in range(len(best))]


def test_history_of_a_minimised_score(search_of):
    data = search_of(goals=(Goal("val/loss", "min"),))
    table = history_plot(data).table
    assert table["val/accuracy"].iloc[-1] == data.complete["score"].min()


def test_importance_needs_twenty_complete_trials(search_of):
    assert plots_of(search_of(25))[1]["importance"] == "needs 20 complete trials, and there are 19"
    assert "importance" in plots_of(search_of(26))[0]


def test_importance_finds_the_key_that_decides_and_is_the_same_again(search_of):
    table = plots_of(search_of(60))[0]["importance"].table
    assert table["key"].iloc[0] == TAU
    assert table["share"].sum() == pytest.approx(1)
    assert table.equals(plots_of(search_of(60))[0]["importance"].table)


def test_parallel_has_whole_names_and_grows_with_the_keys(search_of):
    few, many = (
        search_of(heads=("section",)),
        search_of(heads=("section", "chapter", "a_very_long_head_name")),
    )
    figures = [plots_of(data)[0]["parallel"].figure() for data in (few, many)]
    names = [label.get_text() for label in figures[1].axes[0].get_xticklabels()]
    assert names[0] == "val/accuracy"
    assert "a_very_long_head_name.temperature" in names
    assert len(names) == len(many.varied) + 1
    assert figures[1].get_figwidth() > figures[0].get_figwidth()


def test_contours_are_capped_and_pair_a_temperature_with_a_weight(search_of):
    plots, _ = plots_of(search_of(30, heads=("section", "chapter", "category")))
    contours = [plot for name, plot in plots.items() if name.startswith("contour")]
    assert len(contours) == 4
    for plot in contours:
        trial, temperature, weight, score = plot.table
        assert (trial, score) == ("trial", "score")
        assert temperature.endswith(".temperature")
        assert weight.endswith(".weight")


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
    best = plot.figure().axes[0].collections[-1].get_offsets()
    assert len(best) == plot.table["on the front"].sum()


def test_words_of_a_choice_are_drawn_as_they_are(search_of):
    def change(frame):
        return frame.assign(**{"encoder.name": ["$a$ <b>" if n % 2 else "c_d" for n in range(len(frame))]})

    plots, _ = plots_of(search_of(change=change))
    assert "$a$ &lt;b&gt;" in to_svg(plots["parallel"].figure())


def test_one_trial(search_of):
    _, left_out = plots_of(search_of(1))
    assert left_out["history"] == "its values are all the same"
    assert left_out["importance"] == "needs 20 complete trials, and there is 1"
    assert left_out["response"] == "no number differs between complete trials"
    assert left_out["contour"] == "needs 4 complete trials, and there is 1"
    assert left_out["pareto"] == "there is one goal"


def test_no_complete_trial(search_of):
    plots, left_out = plots_of(search_of(5, change=lambda frame: frame.assign(state="PRUNED")))
    assert not plots
    assert left_out["history"] == left_out["response"] == left_out["ternary"] == "no trial is complete"


def test_nothing_searched(search_of):
    plots, left_out = plots_of(search_of(1, change=lambda frame: frame.iloc[:0]))
    assert not plots
    assert len(left_out) == 8
