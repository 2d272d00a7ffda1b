"""Tests of the baselines of a job, which are runs of their own."""

import json
import math
import signal
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from stored_runs import TEXT_BASELINES
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import dump_job, load_job
from mlcl.errors import UserError
from mlcl.service.run_baselines import BaselinePlan, best_baseline, run_baselines
from mlcl.testing.datasets import small_dataset
from mlcl.tracking import State, Tracker
from mlcl.training.baseline_fits import DRAWS
from mlcl.training.baselines.jobs import dataset_job
from mlcl.training.context import ONE_PROCESS
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

NAMES = [*TEXT_BASELINES, *(["words_logreg"] if find_spec("wordllama") else [])]


@pytest.fixture
def place(tmp_path):
    return small_dataset(tmp_path / "texts", "text")


@pytest.fixture
def job(place):
    return load_job(dataset_job(place))


def mlcl(*words):
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def test_each_is_a_run_under_its_name(job, tmp_path):
    plan = BaselinePlan.of(job, ["majority", "tfidf_svm"], tmp_path)
    reports = run_baselines(plan, home=tmp_path, listener=lambda _: None, announce=lambda _: None)
    client = Tracker(tmp_path).client
    for name, report in reports.items():
        run = client.get_run(report.mlflow_run_id)
        assert report.state is State.COMPLETE
        assert run.info.run_name == name
        assert run.data.tags["mlcl.id"] == report.id
        assert run.data.params["baseline"] == name
        assert run.data.metrics["test/micro_f1"] == report.metrics["test/micro_f1"]
        assert {item.path for item in client.list_artifacts(report.mlflow_run_id)} >= {"result.json"}


def test_without_a_rating_among_redrawn_rows_the_given_validation_rows_decide(job, tmp_path, monkeypatch):
    plan, metric = BaselinePlan.of(job, ["majority", "tfidf_svm"], tmp_path), job.evaluation.metric
    draws = {"majority": math.nan, "tfidf_svm": math.nan}
    monkeypatch.setattr("mlcl.service.run_baselines.redrawn_scores", lambda *_: draws)
    reports = {
        name: SimpleNamespace(state=State.COMPLETE, metrics={metric: value})
        for name, value in (("majority", 0.5), ("tfidf_svm", 0.9))
    }
    assert best_baseline(plan, reports, home=tmp_path, announce=print) == ("tfidf_svm", {})


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), UserError("no model")])
def test_one_that_fails_does_not_keep_the_others(error, job, tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr("mlcl.training.baselines.methods.nearest_neighbours.neighbours", fail)
    plan, messages = BaselinePlan.of(job, ["tfidf_knn", "majority"], tmp_path), []
    reports = run_baselines(plan, home=tmp_path, listener=lambda _: None, announce=messages.append)
    assert list(reports) == ["majority"]
    assert f"tfidf_knn FAILED: {type(error).__name__}: {error}" in messages
    failed_runs = Tracker(tmp_path).client.search_runs(["1"], "tags.`mlcl.state` = 'FAILED'")
    assert [run.info.run_name for run in failed_runs] == ["tfidf_knn"]
    plan = BaselinePlan.of(job, ["tfidf_knn"], tmp_path)
    with pytest.raises(UserError, match="no model" if isinstance(error, UserError) else "could be fitted"):
        run_baselines(plan, home=tmp_path, listener=lambda _: None, announce=messages.append)


def test_a_stop_that_comes_too_late_for_one_ends_the_command(job, tmp_path):
    plan = BaselinePlan.of(job, ["majority", "tfidf_svm", "tfidf_knn"], tmp_path)

    def stop_at_the_end(event):
        if event.kind == "end":
            signal.raise_signal(signal.SIGINT)

    def states(listener):
        reports = run_baselines(plan, home=tmp_path, listener=listener, announce=lambda _: None)
        return {name: report.state for name, report in reports.items()}, reports["tfidf_svm"].id

    stopped_states, id = states(stop_at_the_end)
    assert stopped_states == {"majority": State.COMPLETE, "tfidf_svm": State.STOPPED}
    assert not list((tmp_path / "cache" / "baselines").glob("*partial*"))
    resumed_states, resumed_id = states(lambda _: None)
    assert (set(resumed_states.values()), len(resumed_states), resumed_id) == ({State.COMPLETE}, 3, id)


def test_a_name_that_does_not_fit_is_refused(job, tmp_path):
    with pytest.raises(UserError, match="reads images"):
        BaselinePlan.of(job, ["majority", "pixels_knn"], tmp_path)


def test_the_command_ends_with_one_table(place, tmp_path):
    result = mlcl("baseline", place, "--home", tmp_path)
    assert result.exit_code == 0
    assert all(name in result.stdout for name in NAMES)
    assert "encoder_knn left out: the job's encoder, cnn_text, is not a pretrained one" in result.stdout
    assert "best on 5 draws of the few validation rows: " in result.stdout


def test_the_command_for_programs(place, tmp_path):
    plan = json.loads(mlcl("baseline", place, "--dry-run", "--json", "--home", tmp_path).stdout)
    assert list(plan["baselines"]) == NAMES
    assert not (tmp_path / "runs").exists()
    words = ("tfidf_svm", "majority", "evaluation.metric=val/macro_f1", "--json", "--home", tmp_path)
    document = json.loads(mlcl("baseline", place, *words).stdout)
    assert (document["metric"], document["best"], list(document["baselines"])) == (
        "val/macro_f1", "tfidf_svm", ["tfidf_svm", "majority"],
    )  # fmt: skip
    assert document["baselines"]["tfidf_svm"]["state"] == "COMPLETE"
    assert document["redrawn"].keys() == {"tfidf_svm", "majority"}


def test_of_few_validation_rows_the_best_is_that_over_several_draws(job, tmp_path, monkeypatch):
    """Tests that the best baseline is the best over several draws of validation rows if these are few."""
    plan = BaselinePlan.of(job, ["majority", "tfidf_svm"], tmp_path)
    reports = {
        name: Mock(state=State.COMPLETE, metrics={"val/micro_f1": value})
        for name, value in (("majority", 0.9), ("tfidf_svm", 0.8))
    }
    options = {"home": tmp_path, "announce": lambda _: None}
    best, mean_scores = best_baseline(plan, reports, **options)
    assert best == "tfidf_svm"
    seeds = []
    for seed in range(DRAWS):
        job_data = JobData.of(
            load_job(dump_job(plan.jobs["majority"]), {"data.validation_seed": seed}), tmp_path
        )
        seeds.append(run_experiment_metric(job_data, tmp_path / str(seed)))
    assert mean_scores["majority"] == pytest.approx(sum(seeds) / DRAWS)
    monkeypatch.setattr("mlcl.data.validation_rows.SMALL", 5)  # then there are enough validation rows
    assert best_baseline(plan, reports, **options) == ("majority", {})
    monkeypatch.undo()
    reports["majority"].state = State.STOPPED
    assert best_baseline(plan, reports, **options) == ("majority", {})


def test_the_best_by_a_loss_has_the_smallest_and_none_is_negative(place, tmp_path):
    job = load_job(dataset_job(place), ["evaluation.metric=val/hamming_loss"])
    plan = BaselinePlan.of(job, ["majority", "tfidf_svm"], tmp_path)
    reports = {name: Mock(state=State.COMPLETE, metrics={"val/hamming_loss": 0.5}) for name in plan.jobs}
    best, mean_scores = best_baseline(plan, reports, home=tmp_path, announce=lambda _: None)
    assert 0 <= mean_scores[best] == min(mean_scores.values()) < max(mean_scores.values())


def run_experiment_metric(job_data, folder):
    result = run_experiment(job_data, folder=folder, context=ONE_PROCESS, listener=lambda _: None, test=False)
    return result.metrics["val/micro_f1"]
