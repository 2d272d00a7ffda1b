"""Tests of `mlcl sweep`: its report, store and study, and sweeps that are stopped, killed and resumed."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import ledgers
import mlflow
import pandas as pd
import psutil
import pytest
import yaml
from builders import HEADS_SPACE
from patience import PATIENCE, until
from ray_folder import rays_own_folder

from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import build_study
from mlcl.store import RunFolders

EPOCHS = 150
"""The epochs of a training that lasts some seconds, so that a test can interrupt it."""
ONE_KEY = {"space": {"train.lr": {"log_float": [0.005, 0.05]}}, "search": {"scheduler": "none"}}


def write_space(mlcl, tree):
    path = mlcl.folder / "space.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def study_of(folder):
    version = Ledger(folder).versions()[-1]
    return build_study(version, Ledger(folder).trials(version.number), "sweep")


def by_key(mlcl):
    runs = mlcl.runs()
    return {run.data.tags.get("mlcl.key", run.data.tags.get("mlcl.kind", "run")): run for run in runs}


def statuses(mlcl):
    return {run.info.status for run in mlcl.runs()}


def checkpoints(mlcl):
    return list(mlcl.home.glob("sweeps/*/trials/*/checkpoint.pt"))


def test_a_sweep_end_to_end(mlcl):
    space, baseline = write_space(mlcl, HEADS_SPACE), mlcl.folder / "baseline.yaml"
    tree = yaml.safe_load(mlcl.job.read_text())
    tree["objective"]["heads"] = {}
    baseline.write_text(yaml.safe_dump(tree))
    options = ("--trials", 3, "--seeds", 2, "--searches", 1, "--baseline", baseline, "--json")
    answer = mlcl("sweep", mlcl.job, space, *options, "train.epochs=6")
    assert answer.status == 0, answer.err
    report = answer.json
    assert (report["state"], report["name"], report["undelivered"]) == ("COMPLETE", "job-space", 0)
    assert (report["score"], report["fresh_score"]) == ("val/accuracy", "knn/val/accuracy")
    assert [trial["key"] for trial in report["trials"]] == [f"trial-{n:04d}" for n in range(3)]
    assert {json.loads(line)["kind"] for line in answer.err.splitlines() if line.startswith("{")} >= {
        "note", "stage", "begin", "rung", "close", "end"
    }  # fmt: skip

    runs = {run.info.run_id: run for run in mlcl.runs()}
    assert statuses(mlcl) <= {"FINISHED", "KILLED"}
    parent = runs[report["mlflow_run_id"]]
    artifacts = {item.path for item in mlcl.client.list_artifacts(parent.info.run_id)}
    assert {"job.yaml", "space.yaml", "best_settings.json"} <= artifacts
    check_trials(mlcl, report, runs)
    check_confirmations(report, runs)
    check_baselines(report)
    complete_trials = [trial for trial in report["trials"] if trial["state"] == "COMPLETE"]
    assert report["best"] == max(complete_trials, key=lambda trial: trial["score"])["label"]
    assert parent.data.metrics["score"] == max(trial["score"] for trial in complete_trials)
    version = mlcl.client.get_model_version_by_alias("tiny", "best")
    assert version.tags["metric"] == report["score"]
    labelled = mlflow.pyfunc.load_model(version.source).predict(pd.DataFrame({"text": ["vote", "ball"]}))
    assert list(labelled)[:2] == ["label", "probability"]
    assert report["registered"] == "models:/tiny@best (version 1)"
    show_answer, show_json = mlcl("show", "job-space"), mlcl("show", "job-space", "--json").json
    assert show_json["verdicts"] == report["verdicts"] != []
    for verdict in report["verdicts"]:
        assert verdict["sentence"] in " ".join(show_answer.out.split())
    assert show_answer.out.count("picked: ") == 3


def check_trials(mlcl, report, runs):
    """Checks that the report, MLflow, Optuna and the folders agree about every search trial."""
    folder = mlcl.home / "sweeps" / report["id"]
    states = {trial.user_attrs["label"]: trial.state.name for trial in study_of(folder).trials}
    for trial in report["trials"]:
        run, is_complete = runs[trial["mlflow_run_id"]], trial["state"] == "COMPLETE"
        assert run.data.tags["mlcl.key"] == trial["key"]
        assert run.data.tags["mlcl.state"] == trial["state"] == states[trial["label"]]
        assert run.info.status == {"COMPLETE": "FINISHED", "PRUNED": "KILLED"}[trial["state"]]
        assert run.data.tags["mlflow.parentRunId"] == report["mlflow_run_id"]
        assert not any(name.startswith("test/") for name in run.data.metrics)
        assert run.data.metrics["score"] == trial["score"]
        weights = [value for key, value in trial["settings"].items() if key.endswith("weight")]
        assert 0.1 - 1e-9 <= sum(weights) <= 0.6 + 1e-9
        weight = float(run.data.params["objective.heads.topic.weight"])
        assert weight == trial["settings"]["objective.heads.topic.weight"]
        assert trial["chosen"] == {}  # the race chooses the neighbours
        assert (folder / "trials" / trial["key"] / "result.json").exists() == is_complete


def check_confirmations(report, runs):
    """Checks that control, baseline and job were confirmed on the same seeds, none of them the search's."""
    groups = [group for group in report["confirmations"] if "baseline" not in group["params"]]
    assert [group["arm"] for group in groups] == ["control", "baseline", "heads"]
    search_seeds = {run.data.tags["mlcl.seed"] for run in runs.values() if "mlcl.trial" in run.data.tags}
    seed_sets = []
    for group in groups:
        assert group["state"] == "COMPLETE"
        seeds = [runs[seed["mlflow_run_id"]] for seed in group["seeds"]]
        assert {run.data.tags["mlflow.parentRunId"] for run in seeds} == {group["mlflow_run_id"]}
        assert all({"test/accuracy", "knn/test/accuracy"} <= run.data.metrics.keys() for run in seeds)
        knn_settings = {
            key: value for key, value in group["settings"].items() if key.startswith("evaluation.knn.")
        }
        assert knn_settings.keys() >= {"evaluation.knn.lambda"}
        assert all(
            float(run.data.params[key]) == value for run in seeds for key, value in knn_settings.items()
        )
        seed_sets.append({run.data.params["train.seed"] for run in seeds})
    assert all(len(seeds) == 2 and seeds == seed_sets[0] for seeds in seed_sets)
    assert search_seeds.isdisjoint(seed_sets[0])


def check_baselines(report):
    """Checks that fitted baselines were confirmed and that the best model is compared with the baselines."""
    groups = {group["label"]: group["seeds"] for group in report["confirmations"]}
    assert {"majority", "tfidf_knn", "tfidf_logreg", "tfidf_logreg_balanced", "tfidf_svm"} <= groups.keys()
    assert len(groups["tfidf_svm"]) == 1
    assert groups["tfidf_svm"][0]["metrics"]["test/accuracy"] >= 0
    heads, best = report["verdicts"]
    assert (heads["question"], heads["reference"]["label"], heads["treated"]["trainings"]) == (
        "heads",
        "control",
        2,
    )
    assert best["question"] == "baseline"
    assert heads["rows_counted"]


def sweep_of_two(mlcl):
    space = write_space(mlcl, ONE_KEY)
    return ("sweep", mlcl.job, space, "--trials", 2, "--json", f"train.epochs={EPOCHS}")


@pytest.mark.slow
def test_killed_with_all_of_its_processes_and_gone_on_with(mlcl):
    """Any command closes a killed sweep; resumed, and after a killed worker, it has every epoch once."""
    command = sweep_of_two(mlcl)
    process = start_and_train(mlcl, command)
    os.killpg(process.pid, signal.SIGKILL)
    process.answer()
    zombies = [run for run in mlcl.runs() if run.info.status == "RUNNING"]
    assert zombies
    assert mlcl("run", mlcl.job, "train.epochs=1").status == 0
    for run in zombies:
        closed_run = mlcl.client.get_run(run.info.run_id)
        assert (closed_run.info.status, closed_run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")
        assert closed_run.data.tags["mlcl.reason"] == "its process was killed"
    assert "RUNNING" not in statuses(mlcl)
    ((_, record),) = RunFolders(mlcl.home, "sweeps").records()
    assert record.state == "STOPPED"

    process = start_and_train(mlcl, command)
    until(lambda: worker_of(process)).kill()
    answer = process.answer()
    assert answer.status == 0, answer.err
    check_gone_on(mlcl, record.id, answer.json)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stopped_with_all_of_its_processes_and_gone_on_with(mlcl, number):
    command = sweep_of_two(mlcl)
    report = stop(mlcl, command, number)
    answer = mlcl(*command)
    assert answer.status == 0, answer.err
    check_gone_on(mlcl, report["id"], answer.json)
    assert answer.json["trials"][0]["settings"] == report["trials"][0]["settings"]
    assert statuses(mlcl) == {"FINISHED"}
    assert len(mlcl.runs()) == 3


def stop(mlcl, command, number):
    """Returns the output of a command that is stopped as `timeout`, systemd and a closed terminal do it.

    The signal goes to every process of the command, and a second time to the first process.
    """
    process = mlcl.start(*command)
    until(lambda: checkpoints(mlcl))
    driver = psutil.Process(process.pid)
    processes = [driver, *driver.children(recursive=True)]
    assert len(processes) > 5
    for member in [*processes, driver]:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(number)
    start = time.monotonic()
    answer = process.answer()
    assert answer.status == 130, answer.err
    assert time.monotonic() - start < 45, answer.err
    assert all(json.loads(line) for line in answer.err.splitlines())
    assert psutil.wait_procs(processes, timeout=PATIENCE)[1] == []
    names = [path.name for path in mlcl.home.glob("sweeps/*/*")]
    assert not [name for name in names if name.startswith(("ray-", "STOP"))]
    assert not list(Path(rays_own_folder()).glob(f"session_*_{process.pid}"))
    report = answer.json
    assert report["state"] == "STOPPED"
    assert {trial["state"] for trial in report["trials"]} == {"STOPPED"}
    assert statuses(mlcl) == {"KILLED"}
    states = {trial.state.name for trial in study_of(mlcl.home / "sweeps" / report["id"]).trials}
    assert states == {"WAITING"}
    return report


def start_and_train(mlcl, command):
    """Starts the command and returns its process when it trains."""
    n_values = len(values(mlcl))
    process = mlcl.start(*command)
    until(lambda: len(values(mlcl)) > n_values and "RUNNING" in statuses(mlcl))
    return process


def check_gone_on(mlcl, id, report):
    """Checks that the sweep is the same, and that its two trials have every epoch once."""
    assert report["id"] == id
    assert [trial["state"] for trial in report["trials"]] == ["COMPLETE", "COMPLETE"]
    for key in ("trial-0000", "trial-0001"):
        history = mlcl.client.get_metric_history(by_key(mlcl)[key].info.run_id, "train/loss")
        assert sorted(point.step for point in history) == [3 * epoch for epoch in range(1, EPOCHS + 1)]


def values(mlcl):
    return [event for event in ledgers.events(mlcl.home) if event["event"] == "value"]


def worker_of(process):
    """Returns a process that trains, or None."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name().startswith("ray::ImplicitFunc"):
                return child
    return None


@pytest.mark.slow
def test_failing_trials_are_failed_with_their_reason_and_too_many_end_the_sweep(mlcl):
    tree = {"space": {"train.lr": {"log_float": [1e29, 1e31]}}, "search": {"max_failed": 1}}
    settings = ("train.optimizer=sgd", "train.warmup=0", "train.lr=1e30")
    options = ("--trials", 6, "--cpus", os.cpu_count(), "--json")
    answer = mlcl("sweep", mlcl.job, write_space(mlcl, tree), *options, *settings)
    assert answer.status == 3, answer.err
    report = answer.json
    assert report["state"] == "FAILED"
    assert "the limit is 1" in report["reason"]
    assert [trial["state"] for trial in report["trials"]] == ["FAILED", "FAILED"]
    assert all("not finite" in trial["reason"] for trial in report["trials"])
    runs = by_key(mlcl)
    assert {run.data.tags["mlcl.state"] for run in runs.values()} == {"FAILED"}
    assert "not finite" in runs["trial-0000"].data.tags["mlcl.reason"]
    study = study_of(mlcl.home / "sweeps" / report["id"])
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL"]


@pytest.mark.slow
def test_trials_of_two_workers_each(mlcl):
    space = write_space(mlcl, ONE_KEY)
    answer = mlcl("sweep", mlcl.job, space, "--trials", 2, "--json", "train.workers=2")
    assert answer.status == 0, answer.err
    report = answer.json
    assert [trial["state"] for trial in report["trials"]] == ["COMPLETE", "COMPLETE"]
    assert by_key(mlcl)["sweep"].data.params["train.workers"] == "2"
    for key, run in by_key(mlcl).items():
        if key.startswith("trial"):
            history = mlcl.client.get_metric_history(run.info.run_id, "train/loss")
            assert len({point.step for point in history}) == len(history) == 4
    assert statuses(mlcl) == {"FINISHED"}


@pytest.mark.slow
def test_a_used_up_budget_ends_a_sweep_and_a_larger_one_goes_on(mlcl):
    command = ("sweep", mlcl.job, write_space(mlcl, ONE_KEY), "--json", "train.epochs=800")
    answer = mlcl(*command, "--trials", 2, "--budget", "10s")
    assert answer.status == 4, answer.err
    report = answer.json
    assert report["state"] == "BUDGET"
    assert {trial["state"] for trial in report["trials"]} == {"BUDGET"}
    assert "RUNNING" not in statuses(mlcl)
    assert {run.data.tags["mlcl.state"] for run in mlcl.runs()} == {"BUDGET"}
    assert mlcl(*command, "--trials", 2, "--budget", "10s").json["state"] == "BUDGET"
    second_answer = mlcl(*command, "--trials", 2, "--budget", "1h")
    assert second_answer.status == 0, second_answer.err
    assert {trial["state"] for trial in second_answer.json["trials"]} == {"COMPLETE"}
    assert statuses(mlcl) == {"FINISHED"}


@pytest.mark.slow
def test_several_goals_have_a_front(mlcl):
    metrics = ["val/accuracy", "val/macro_f1"]
    tree = {**ONE_KEY, "search": {"metric": metrics, "prune_by": "val/accuracy", "scheduler": "none"}}
    answer = mlcl("sweep", mlcl.job, write_space(mlcl, tree), "--trials", 4, "--json")
    assert answer.status == 0, answer.err
    report = answer.json
    assert [goal["metric"] for goal in report["goals"]] == metrics
    points = {trial["label"]: trial["values"] for trial in report["trials"]}
    dominated_labels = {
        label
        for label, point in points.items()
        if any(
            other != point
            and all(other_value >= value for other_value, value in zip(other, point, strict=True))
            for other in points.values()
        )
    }
    assert set(report["front"]) == points.keys() - dominated_labels
    study = study_of(mlcl.home / "sweeps" / report["id"])
    assert [trial.values for trial in study.trials] == list(points.values())
