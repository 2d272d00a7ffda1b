"""Tests of the curves over steps of confirmed settings."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlcl.config import Goal
from mlcl.report.plots.charts import PlotSkipped
from mlcl.report.plots.learning_curves import confirmation_plots, curve_runs, learning_plot, mean_curve

SEEDS = pd.DataFrame(
    {
        "setting": ["as written", "as written", "trial 2", "trial 2", "trial 2"],
        "state": ["COMPLETE", "COMPLETE", "COMPLETE", "COMPLETE", "FAILED"],
        "run_id": ["a1", "a2", "b1", "b2", "b3"],
    }
)
HISTORIES = {
    ("a1", "val/accuracy"): [(10, 0.2), (20, 0.4), (30, 0.5)],
    ("a2", "val/accuracy"): [(10, 0.4), (20, 0.6)],
    ("b1", "val/accuracy"): [(10, 0.5), (20, 0.7)],
    ("b2", "val/accuracy"): [(10, 0.5), (20, 0.9)],
    ("b1", "train/heads/section/temperature"): [(1, 0.5), (2, 0.25)],
    ("b2", "train/heads/section/temperature"): [(1, 0.5), (2, 0.75)],
    ("b1", "train/heads/chapter/positives_per_anchor"): [(1, 3.0), (2, 5.0)],
    ("b2", "train/heads/chapter/positives_per_anchor"): [(1, 4.0), (2, 5.0)],
}


def history(run_id, metric):
    return HISTORIES.get((run_id, metric), [])


def plots_of(data):
    plots, skipped = confirmation_plots(data)
    return {plot.name: plot for plot in plots}, dict(skipped)


def test_learning_curve_is_the_mean_over_seeds_at_their_common_steps(search_of):
    plots, _ = plots_of(search_of(confirmation=SEEDS, history=history))
    table = plots["learning"].table.set_index(["series", "step"])
    assert list(table.index) == [("as written", 10), ("as written", 20), ("trial 2", 10), ("trial 2", 20)]
    for (setting, step), row in table.iterrows():
        runs = {"as written": ("a1", "a2"), "trial 2": ("b1", "b2")}[setting]
        first, second = (dict(HISTORIES[run, "val/accuracy"])[step] for run in runs)
        mean, spread = (first + second) / 2, abs(first - second) / np.sqrt(2)
        np.testing.assert_allclose(
            [row["val/accuracy"], row["low"], row["high"]], [mean, mean - spread, mean + spread]
        )


def test_temperatures_and_positives_by_head(search_of):
    plots, skipped = plots_of(search_of(confirmation=SEEDS, history=history))
    assert not skipped
    assert set(plots["temperatures"].table["series"]) == {"section, trial 2"}
    assert plots["temperatures"].table["temperature"].tolist() == [0.5, 0.5]
    assert plots["temperatures"].figure().axes[0].get_yscale() == "log"
    assert plots["positives"].table["series"].tolist() == ["chapter", "chapter"]
    assert plots["positives"].table["positives per anchor"].tolist() == [3.5, 5.0]
    assert "trial 2" in plots["positives"].title


def test_constant_temperatures_are_left_out(search_of):
    plots, skipped = plots_of(search_of(confirmation=SEEDS, history=lambda run, metric: [(1, 0.5), (2, 0.5)]))
    assert skipped["temperatures"] == "every temperature is constant during training"
    assert skipped["learning"] == skipped["positives"] == "its values are all the same"
    assert not plots


def test_best_trial_stands_in_where_nothing_was_confirmed(search_of):
    data = search_of()
    assert curve_runs(data) == {data.best["setting"]: [data.best["run_id"]]}


def test_runs_that_mlflow_does_not_have_yet_are_left_out(search_of):
    data = search_of()
    unsent_data = replace(data, search=data.search.assign(run_id=None))
    assert unsent_data.complete_runs == {}
    with pytest.raises(PlotSkipped, match=r"no training is complete and in MLflow"):
        curve_runs(unsent_data)


def test_single_runs_have_no_band(search_of):
    plots, _ = plots_of(search_of(history=lambda run, metric: [(1, 0.5), (2, 0.6)]))
    assert "low" not in plots["learning"].table
    assert plots["learning"].caption == "One training of each setting."


def test_nothing_logged_and_no_training_complete(search_of):
    _, skipped = plots_of(search_of(confirmation=SEEDS))
    assert skipped["learning"] == skipped["positives"] == "fewer than two steps of it were logged"
    plots, skipped = plots_of(search_of(3, change=lambda frame: frame.assign(state="FAILED")))
    assert not plots
    assert set(skipped.values()) == {"no training is complete and in MLflow"}
    assert mean_curve("s", [[(1, 0.5)], [(2, 0.5)]]).empty  # no step is common to both


def test_a_setting_whose_seeds_share_one_step_is_named():
    histories = {"a1": [(1, 0.1), (2, 0.2)], "b1": [(1, 0.3)], "b2": [(1, 0.4), (2, 0.5)], "c1": []}
    settings = {"a": ["a1"], "b": ["b1", "b2"], "c": ["c1"]}
    plot = learning_plot("val/accuracy", settings, lambda run, _: histories[run])
    assert set(plot.table["series"]) == {"a"}
    assert plot.caption.endswith("Not drawn, for its seeds share one step alone: b.")


def test_the_metric_that_prunes_is_followed(search_of):
    data = search_of(confirmation=SEEDS, history=lambda run, metric: [(1, 0.1), (2, len(metric))])
    other = replace(data, space=replace(data.space, prune_by=Goal("knn/val/macro_f1", "max")))
    assert plots_of(other)[0]["learning"].title == "val/macro_f1 during training"
