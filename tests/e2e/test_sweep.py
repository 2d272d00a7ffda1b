"""`mlcl sweep`: what the store and the study say afterwards, and a sweep that is stopped."""

import os
import signal
import time

import optuna
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

SPACE = {
    "space": {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "objective.heads.*.weight": {"simplex": {"total": [0.1, 0.6]}},
        "evaluation.knn.k": {"choice": [1, 3]},
        "evaluation.knn.lambda": {"float": [0, 1]},
    },
    "search": {"scheduler": "asha", "reduction_factor": 2, "startup": 2},
}


def study_of(folder):
    path = folder / "study.journal"
    return optuna.load_study(study_name=folder.name, storage=JournalStorage(JournalFileBackend(str(path))))


def test_a_sweep_end_to_end(mlcl):
    space, baseline = mlcl.folder / "space.yaml", mlcl.folder / "baseline.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    tree = yaml.safe_load(mlcl.job.read_text())
    tree["objective"]["heads"] = {}
    baseline.write_text(yaml.safe_dump(tree))
    answer = mlcl(
        "sweep",
        mlcl.job,
        space,
        "--trials",
        5,
        "--seeds",
        2,
        "--baseline",
        baseline,
        "--json",
        "train.epochs=6",
    )
    assert answer.status == 0, answer.err
    report = answer.json
    assert report["state"] == "COMPLETE"
    assert report["score"] == "knn_best/val/accuracy"
    assert len(report["trials"]) == 5

    runs = {run.info.run_id: run for run in mlcl.runs()}
    parent = runs[report["mlflow_run_id"]]
    artifacts = {a.path for a in mlcl.client.list_artifacts(parent.info.run_id)}
    assert {"job.yaml", "space.yaml", "best_settings.json"} <= artifacts
    study = study_of(mlcl.home / "sweeps" / report["id"])
    states = {trial.number: trial.state.name for trial in study.trials}
    for trial in report["trials"]:
        run = runs[trial["mlflow_run_id"]]
        number = int(run.data.tags["mlcl.trial"])
        assert run.data.tags["mlcl.state"] == trial["state"] == states[number]
        assert run.info.status == {"COMPLETE": "FINISHED", "PRUNED": "KILLED"}[trial["state"]]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert not any(name.startswith("test/") for name in run.data.metrics)
        weights = [v for k, v in trial["settings"].items() if k.endswith("weight")]
        assert 0.1 <= sum(weights) <= 0.6 + 1e-9
        assert float(run.data.params["objective.heads.topic.weight"]) in [round(w, 12) for w in weights]
    complete = [t for t in report["trials"] if t["state"] == "COMPLETE"]
    assert report["best"] == max(complete, key=lambda t: t["score"])["label"]
    assert parent.data.metrics["score"] == max(t["score"] for t in complete)

    groups = {group["label"]: group for group in report["confirmations"]}
    assert list(groups)[:2] == ["baseline", "as written"]
    search_seed = {run.data.params["train.seed"] for run in runs.values() if "mlcl.trial" in run.data.tags}
    for group in groups.values():
        seeds = [runs[seed["mlflow_run_id"]] for seed in group["seeds"]]
        assert {run.data.tags["mlflow.parentRunId"] for run in seeds} == {group["mlflow_run_id"]}
        assert search_seed.isdisjoint(run.data.params["train.seed"] for run in seeds)
        assert all("test/accuracy" in run.data.metrics for run in seeds)
    assert not [run for run in runs.values() if run.info.status == "RUNNING"]
    assert mlcl.client.get_model_version_by_alias("tiny", "best")


def test_failing_trials_are_failed_with_their_reason(mlcl):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump({"space": {"train.lr": {"choice": [1e30, 1e31]}}}))
    answer = mlcl("sweep", mlcl.job, space, "--trials", 2, "--json", "train.optimizer=sgd", "train.warmup=0")
    assert answer.status == 3
    report = answer.json
    assert report["state"] == "FAILED"
    assert {t["state"] for t in report["trials"]} == {"FAILED"}
    assert all("not finite" in t["reason"] for t in report["trials"])
    assert {run.data.tags["mlcl.state"] for run in mlcl.runs()} == {"FAILED"}
    study = study_of(mlcl.home / "sweeps" / report["id"])
    assert {trial.state.name for trial in study.trials} == {"FAIL"}


def test_a_stopped_sweep_leaves_nothing_running(mlcl):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    process = mlcl.start("sweep", mlcl.job, space, "--trials", 50, "--json", "train.epochs=300")
    end = time.monotonic() + 120
    while not list(mlcl.home.glob("sweeps/*/trials/*/checkpoint.pt")):
        assert time.monotonic() < end
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert '"state": "STOPPED"' in out
    states = {run.data.tags["mlcl.state"] for run in mlcl.runs()}
    assert "RUNNING" not in states
    assert not [run for run in mlcl.runs() if run.info.status == "RUNNING"]


def test_a_killed_sweep_is_closed_by_the_next_command(mlcl):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    process = mlcl.start("sweep", mlcl.job, space, "--trials", 50, "train.epochs=300")
    end = time.monotonic() + 120
    while not list(mlcl.home.glob("sweeps/*/trials/*/checkpoint.pt")):
        assert time.monotonic() < end
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    zombies = [run for run in mlcl.runs() if run.info.status == "RUNNING"]
    assert zombies
    time.sleep(3)  # Ray's own processes notice that their driver is gone
    assert mlcl("run", mlcl.job, "train.epochs=1").status == 0
    for run in zombies:
        closed = mlcl.client.get_run(run.info.run_id)
        assert (closed.info.status, closed.data.tags["mlcl.state"]) == ("FAILED", "FAILED")
        assert closed.data.tags["mlcl.reason"] == "its process was killed"
    assert not [run for run in mlcl.runs() if run.info.status == "RUNNING"]


def test_a_dry_run_of_a_sweep_says_what_it_would_do(mlcl):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    plan = mlcl("sweep", mlcl.job, space, "--trials", 5, "--seeds", 3, "--dry-run", "--json").json
    assert plan["sweep"]["confirmation_runs"] == 6
    assert plan["sweep"]["rungs_at_epochs"] == [1, 2]
    assert plan["sweep"]["answered_after_training"] == {
        "evaluation.knn.grid.k": 2,
        "evaluation.knn.grid.lambda": 21,
    }
    assert not (mlcl.home / "mlflow.db").exists()
