"""Tests that `mlcl posthoc` chooses the best point on validation, by a loop over all points."""

import itertools
import json
import math
from dataclasses import replace

import pandas as pd
import pytest
import yaml
from builders import job_tree
from stored_runs import TAGS, trained
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import dump_job, load_job
from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.plugins import only_reading
from mlcl.results.knn_scores import JobDataCache
from mlcl.results.posthoc import score_posthoc
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.training.run_files import JOB as JOB_FILE
from mlcl.training.stored_run import StoredRun

GRID = {"k": [1, 3], "lambda": [0.0, 0.5, 1.0], "temperature": [0.5, 2.0]}
JOB = ("evaluation.knn.k=3", *(f"evaluation.knn.grid.{key}={values}" for key, values in GRID.items()))

SELECTED = {"evaluation.metric": "knn/val/accuracy"}


@pytest.fixture(scope="module")
def finished(store, tiny, tmp_path_factory):
    """Trains two seeds of one setting and stores what they left; returns the home and both runs."""
    home, runs = tmp_path_factory.mktemp("home"), {}
    for seed in (0, 1):
        name = f"seed{seed}"
        folder, job_data, metrics = trained(tiny, home, *JOB, name=name, seed=seed)
        id = store.add("posthoc", name=name, seed=seed, metrics=metrics, params=SELECTED)
        store.left(id, folder)
        runs[id] = (folder, job_data)
    return home, runs


@pytest.fixture(scope="module")
def scored(store, finished):
    runs = Runs(store.tracker)
    (setting,) = find_settings(runs, [next(iter(finished[1]))])
    baseline = replace(setting, job={**setting.job, "baseline": "majority"}, runs={})  # not scored
    return score_posthoc(runs, [setting, baseline], finished[0])


def test_the_best_on_validation_of_all_points(scored, finished):
    scores = {}
    for setting in itertools.product(*GRID.values()):
        run_metrics = [StoredRun.read(*run).metrics(Setting(*setting)) for run in finished[1].values()]
        scores[setting] = tuple(
            sum(metrics[f"knn/{s}/accuracy"] for metrics in run_metrics) / 2 for s in ("val", "test")
        )
    points = scored.points[scored.points["in_grid"]].set_index([*GRID])[["val", "test"]]
    assert sorted(points.index) == sorted(scores)
    for setting, values in scores.items():
        assert tuple(points.loc[setting]) == pytest.approx(values)
    best = scored.chosen[scored.chosen["which"] == "best on validation"].iloc[0]
    assert best["val"] == pytest.approx(max(val for val, _ in scores.values()))
    assert (best["val"], best["test"]) == pytest.approx(scores[tuple(best[[*GRID]])])
    assert (scored.metric, best["seeds"]) == ("accuracy", 2)


def test_the_model_alone_has_no_neighbours(scored, finished, store):
    model_row = scored.chosen[scored.chosen["which"] == "the model alone"].iloc[0]
    run_metrics = [store.client.get_run(id).data.metrics for id in finished[1]]
    assert model_row["lambda"] == 0
    assert model_row["val"] == pytest.approx(sum(run["val/accuracy"] for run in run_metrics) / 2)


def test_the_command(store, finished, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    words = ["posthoc", next(iter(finished[1])), "--home", str(finished[0])]
    result = CliRunner().invoke(app, [*words, "--csv", str(tmp_path / "all.csv")])
    assert "best on validation" in result.stdout
    assert len(pd.read_csv(tmp_path / "all.csv")) >= 12
    tree = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert tree["chosen"][0]["which"] == "best on validation"
    assert not math.isnan(tree["chosen"][0]["val_sd"])
    assert "cost" not in tree


def test_the_cost_of_neighbours(store, finished, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    words = ["posthoc", next(iter(finished[1])), "--cost", "--home", str(finished[0])]
    output = CliRunner().invoke(app, words).stdout
    assert "cost of the neighbours" in output
    (cost,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["cost"]
    assert (cost["rows"], cost["timed"], cost["k"], cost["device"]) == (48, 24, 3, "cpu")
    assert cost["bytes"] > 48 * 6 * 4
    assert cost["knn_ms"] > cost["model_ms"] > 0


def test_a_run_that_left_nothing(store, tmp_path):
    (id,) = store.setting("bare runs", {0: 0.5})
    runs = Runs(store.tracker)
    with pytest.raises(
        UserError, match=r"embeddings\.parquet: the run left no embeddings; .*tracking\.keep=confirmed"
    ):
        score_posthoc(runs, find_settings(runs, [id]), tmp_path)


def test_a_fitted_baseline_alone_is_refused_by_its_name(store, tmp_path):
    (id,) = store.setting("fitted", {0: 0.5}, params={**SELECTED, "baseline": "tfidf_svm"})
    runs = Runs(store.tracker)
    with pytest.raises(UserError, match=rf"^key WHAT: a fitted baseline has no embeddings; found: {id}$"):
        score_posthoc(runs, find_settings(runs, [id]), tmp_path)


def test_settings_of_different_metrics_have_no_common_table(store, finished):
    other = store.setting("f1", {0: 0.5}, params={"evaluation.metric": "val/macro_f1"})[0]
    runs = Runs(store.tracker)
    with pytest.raises(UserError, match="selected by different metrics; found: accuracy, macro_f1"):
        score_posthoc(runs, find_settings(runs, [next(iter(finished[1])), other]), finished[0])


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    for file, problem in ((tmp_path / "no" / "points.csv", "cannot be written"), (tmp_path, "is no file")):
        result = CliRunner().invoke(app, ["posthoc", "nothing", "--csv", str(file), "--home", str(tmp_path)])
        assert problem in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_figures_and_thresholds_of_labels_are_exact(store, tiny, tmp_path):
    folder, job_data, metrics = trained(tiny, tmp_path, *JOB, *TAGS)
    params = {"evaluation.metric": "val/micro_f1"}
    id = store.add("labels", name="run", seed=0, metrics=metrics, params=params)
    store.left(id, folder)
    runs = Runs(store.tracker)
    chosen_rows = score_posthoc(runs, find_settings(runs, [id]), tmp_path).chosen
    assert set(chosen_rows["which"]) == {"best on validation", "the job's own", "the model alone"}
    for row in chosen_rows.itertuples():
        place = Setting(row.k, chosen_rows.loc[row.Index, "lambda"], row.temperature)
        setting_metrics = StoredRun.read(folder, job_data).metrics(place)
        assert row.threshold == setting_metrics["knn/threshold"]
        assert (row.val, row.test) == (
            setting_metrics["knn/val/micro_f1"],
            setting_metrics["knn/test/micro_f1"],
        )


PLUGIN = """
from mlcl.evaluation import Metric

MISSES = Metric(name="misses", summary="s", source="s", mode="min", classes=lambda prediction: 0.25)
"""


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_job_with_plugin_files_is_not_opened_by_what_only_reads(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    tree = job_tree(tiny) | {"plugins": ["mine.py"]}
    (tmp_path / JOB_FILE).write_text(
        yaml.safe_dump(dump_job(load_job(tree, ["evaluation.metric=val/misses"])))
    )
    cache = JobDataCache(tmp_path)
    with only_reading(), pytest.raises(UserError, match="its job has plugin files, which are not run here"):
        cache(tmp_path)
    assert cache(tmp_path).scoring.mode == "min"
