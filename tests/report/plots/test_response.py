"""Tests of the score over one key: trials of equally many epochs, and the fitted curve."""

import numpy as np
import pytest

from mlcl.report.plots.charts import PlotSkipped
from mlcl.report.plots.search_plots import MOST, gamma_plot, heads_weight, response_plots, score_stages
from mlcl.results import gaussian_process
from mlcl.results.gaussian_process import FEWEST, fitted_curve
from mlcl.tracking.names import CLASSIFIER_WEIGHT

TAU, WEIGHT = "objective.heads.section.temperature", "objective.heads.section.weight"
END = "val/accuracy at the end: 15 trials"


def rungs(row):
    """Returns validations of a made-up trial: 9 of a complete one, and 1, 2, ... of the pruned ones."""
    count = (row["number"] + 1) // 4 if row["state"] == "PRUNED" else 9
    return tuple((n, float(row["number"]) + n / 10) for n in range(1, count + 1))


def test_each_number_has_a_plot_a_temperature_on_a_logarithmic_axis(search_of):
    plots = {plot.name: plot for plot in response_plots(search_of(heads=("section", "chapter")))}
    assert list(plots) == [
        "tau_section", "tau_chapter", "response_section-weight", "response_chapter-weight",
        "response_encoder-width",
    ]  # fmt: skip
    for name, plot in plots.items():
        scale = "log" if name.startswith("tau") else "linear"
        assert [axes.get_xscale() for axes in plot.figure().axes] == [scale]


def test_only_trials_of_equally_many_epochs_share_a_stage(search_of):
    data = search_of(rungs=rungs)
    stages = score_stages(data)
    titles = ["val/accuracy at epoch 1: 20 trials", "val/accuracy at epoch 3: 18 trials"]
    assert list(stages) == [*titles, "val/accuracy at epoch 5: 16 trials", END]
    for title, validation in zip(titles, (1, 3), strict=True):
        for row, score in stages[title].items():
            assert score == float(row) + validation / 10
    assert stages[END].tolist() == data.complete_trials["score"].tolist()
    assert len(stages) == MOST + 1


def test_the_table_has_the_state_of_each_trial_by_stage(search_of):
    data = search_of(rungs=rungs)
    plot = response_plots(data)[0]
    table = plot.table
    for _, row in table[table["stage"] == END].iterrows():
        (trial,) = data.complete_trials[data.complete_trials["setting"] == row["setting"]].to_dict("records")
        state = "best" if trial["number"] == data.best["number"] else "complete"
        values = (row["state"], row["temperature of section"], row["score"])
        assert values == (state, trial[TAU], trial["score"])
    assert set(table[table["stage"] != END]["state"]) == {"best", "complete", "pruned"}
    assert [axes.get_title(loc="left") for axes in plot.figure().axes] == list(dict.fromkeys(table["stage"]))


@pytest.mark.parametrize("log", [False, True])
def test_the_curve_finds_the_shape_under_the_noise(log):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 1.0, 40)
    place = np.log(x / 0.2) if log else (x - 0.4) * 3
    curve = fitted_curve(x, np.exp(-(place**2)) + rng.normal(0, 0.05, 40), log=log)
    truth = np.exp(-((np.log(curve.x / 0.2) if log else (curve.x - 0.4) * 3) ** 2))
    assert np.abs(curve.mean - truth).max() < 0.1
    assert 0.005 < curve.deviation.mean() < 0.05  # the deviation of the mean, not of one score
    flat_curve = fitted_curve(x, np.zeros(40), log=log)
    assert flat_curve is None


def test_many_scores_are_thinned_out_evenly(monkeypatch):
    monkeypatch.setattr(gaussian_process, "MOST", 40)
    x = np.linspace(0.1, 1, 79)
    score = np.sin(3 * x) + np.tile([0.0, 50.0], 40)[:79]  # every second score, from the first, is fitted
    curve = fitted_curve(x, score, log=False)
    assert np.abs(curve.mean - np.sin(3 * curve.x)).max() < 0.05


def test_few_or_equal_points_have_no_curve():
    x = np.linspace(0.1, 1, FEWEST)
    assert fitted_curve(x, x, log=False) is not None
    assert fitted_curve(x[1:], x[1:], log=False) is None
    assert fitted_curve(np.ones(FEWEST), x, log=False) is None


def test_a_score_that_is_not_finite_is_left_out():
    x, score = np.linspace(0.1, 1, FEWEST + 2), np.linspace(0, 1, FEWEST + 2) ** 2
    score[[1, 5]] = np.nan, -np.inf
    is_finite = np.isfinite(score)
    expected = fitted_curve(x[is_finite], score[is_finite], log=False)
    assert np.array_equal(fitted_curve(x, score, log=False).mean, expected.mean)
    assert fitted_curve(x[:-1], score[:-1], log=False) is None  # too few scores are left


def test_gamma_is_what_the_classifier_leaves(search_of):
    data = search_of()
    table = gamma_plot(data).table.set_index("setting")["weight of all heads"]
    for _, row in data.complete_trials.iterrows():
        assert table[row["setting"]] == 1 - row[CLASSIFIER_WEIGHT]


def test_gamma_of_a_fixed_classifier_is_the_heads_own_weight(search_of):
    data = search_of(heads=("section",), change=lambda frame: frame.assign(**{CLASSIFIER_WEIGHT: 1.0}))
    assert heads_weight(data.search).tolist() == data.search[WEIGHT].tolist()
    assert gamma_plot(data).table["weight of all heads"].tolist() == data.complete_trials[WEIGHT].tolist()


def test_nothing_varied(search_of):
    with pytest.raises(PlotSkipped, match="no number differs"):
        response_plots(search_of(varied=("encoder.name",)))
    weights = {CLASSIFIER_WEIGHT: 0.4, WEIGHT: 0.6}
    with pytest.raises(PlotSkipped, match="same in all trials"):
        gamma_plot(search_of(change=lambda frame: frame.assign(**weights), heads=("section",)))
