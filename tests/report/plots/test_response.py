"""The curves of one setting: a head's temperature, the weight of all heads."""

import numpy as np
import pytest

from mlcl.report.plots.plot import PlotSkipped
from mlcl.report.plots.response import gamma_plot, heads_weight, tau_plots
from mlcl.tracking.names import CLASSIFIER_WEIGHT

TAU, WEIGHT = "objective.heads.section.temperature", "objective.heads.section.weight"


def set_to(key, values):
    """A change of the frame: the key takes these values in turn."""
    return lambda frame: frame.assign(**{key: [values[row % len(values)] for row in range(len(frame))]})


def test_each_temperature_has_a_curve_on_a_logarithmic_axis(search_of):
    plots = tau_plots(search_of(heads=("section", "chapter", "category")))
    assert [plot.name for plot in plots] == ["tau_section", "tau_chapter", "tau_category"]
    for plot in plots:
        assert plot.figure().axes[0].get_xscale() == "log"
        assert plot.interactive().layout.xaxis.type == "log"


def test_points_are_the_trials_with_the_best_and_the_stopped_apart(search_of):
    data = search_of()
    table = tau_plots(data)[0].table
    found = dict(zip(table["text"], table.itertuples(index=False, name=None), strict=True))
    for _, row in data.search.iterrows():
        name = "stopped early" if row["state"] == "PRUNED" else "complete"
        name = "best" if row["number"] == data.best["number"] else name
        assert found[row["setting"]][:3] == (name, row[TAU], row["score"])
    assert len(found) == len(data.search)


def test_repeated_values_give_the_mean_with_the_sample_deviation(search_of):
    data = search_of(24, change=set_to(TAU, [0.1, 0.2, 0.5]))
    plot = tau_plots(data)[0]
    for _, row in plot.table.iterrows():
        scores = [
            trial["score"]
            for _, trial in data.complete.iterrows()
            if trial[TAU] == row["temperature of section"]
        ]
        mean = sum(scores) / len(scores)
        spread = (sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)) ** 0.5
        np.testing.assert_allclose(
            [row["val/accuracy"], row["low"], row["high"]], [mean, mean - spread, mean + spread]
        )
    assert plot.table["temperature of section"].tolist() == [0.1, 0.2, 0.5]
    assert "standard deviation" in plot.caption


def test_head_without_its_temperature_in_some_trials(search_of):
    data = search_of(8, change=lambda frame: frame.assign(**{TAU: frame[TAU].where(frame["number"] < 4)}))
    assert len(tau_plots(data)[0].table) == 4


def test_gamma_is_what_the_classifier_leaves(search_of):
    data = search_of()
    table = gamma_plot(data).table
    by_text = dict(zip(table["text"], table["weight of all heads"], strict=True))
    for _, row in data.search.iterrows():
        assert by_text[row["setting"]] == 1 - row[CLASSIFIER_WEIGHT]


def test_gamma_of_a_fixed_classifier_is_the_heads_own_weight(search_of):
    data = search_of(heads=("section",), change=lambda frame: frame.assign(**{CLASSIFIER_WEIGHT: 1.0}))
    assert heads_weight(data.search).tolist() == data.search[WEIGHT].tolist()
    assert set(gamma_plot(data).table["weight of all heads"]) == set(data.search[WEIGHT])


def test_nothing_varied(search_of):
    with pytest.raises(PlotSkipped, match="no temperature differs"):
        tau_plots(search_of(varied=("encoder.name",)))
    with pytest.raises(PlotSkipped, match="same in all trials"):
        gamma_plot(
            search_of(
                change=lambda frame: frame.assign(**{CLASSIFIER_WEIGHT: 0.4, WEIGHT: 0.6}), heads=("section",)
            )
        )
