"""Tests of jobs with real servers: `mlcl up`, `submit`, `logs -f`, `stop`, `resume` and `down`."""

import json
import re

import pytest
import yaml
from builders import job_tree
from mlflow import MlflowClient
from patience import until

from mlcl import run
from mlcl.config.cluster import load_cluster
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.local.processes import free_port
from mlcl.store import RunFolders

pytestmark = pytest.mark.slow

SPACE = {
    "space": {"objective.heads.*.temperature": {"log_float": [0.05, 1.0]}},
    "search": {"scheduler": "none"},
}
EPOCHS = 40
SLOW = '''"""Dice, half a second a batch until a file is there: till then a sweep does not end."""

import time
from pathlib import Path

from mlcl.losses import OverlapRule, overlap_loss


def weight(counts):
    if not Path({file!r}).exists():
        time.sleep(0.5)
    return 2 * counts.shared / (counts.anchor_size + counts.candidate_size)


DICE = overlap_loss("slow_dice", lambda: OverlapRule(weight), summary="slow", source="a test")
'''


@pytest.fixture
def service(mlcl, tiny):
    (mlcl.folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    (mlcl.folder / "slow.py").write_text(SLOW.format(file=str(mlcl.folder / "fast")))
    # The path is absolute, since a job runs in a copy of this folder.
    tree = job_tree(tiny, epochs=EPOCHS)
    tree["objective"]["heads"] = {"tags": {"loss": "slow_dice", "labels": "tags", "weight": 0.3}}
    mlcl.write_job(tree | {"plugins": ["slow.py"]})
    ports = [word for name in ("ray", "dashboard", "mlflow") for word in (f"--{name}-port", str(free_port()))]
    answer = mlcl("up", *ports, "--json")
    assert answer.status == 0, answer.err
    try:
        yield answer.json
    finally:
        mlcl("down", "--force")


def runs_of(mlcl, service, id, monkeypatch):
    """Returns the key and state of each run that MLflow's server has of a job."""
    cluster = load_cluster(mlcl.home / "service" / "cluster.yaml")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", service["user"])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", cluster.mlflow.password.resolve("password"))
    client = MlflowClient(service["mlflow"])
    experiment_ids = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiment_ids, f"tags.`mlcl.job` = '{id}'")
    tags = [run.data.tags for run in runs]
    return sorted(
        (run_tags.get("mlcl.key", run_tags.get("mlcl.kind", "run")), run_tags["mlcl.state"])
        for run_tags in tags
    )


def submit(mlcl, *words):
    answer = mlcl("submit", "--id", "lab-1", *words)
    assert (answer.status, answer.out) == (0, "lab-1\n"), answer.err


def stop(mlcl, name):
    assert mlcl("status", "lab-1", "--json").json["state"] == "RUNNING"
    answer = mlcl("stop", "lab-1")
    assert (answer.status, answer.out) == (0, "lab-1 STOPPED\n"), answer.err
    assert f"stopped; mlcl resume lab-1 goes on with {name}" in mlcl("logs", "lab-1").out
    assert mlcl("status", "lab-1").status == 130


def resume(mlcl, *options):
    """Resumes the job, waits for its end, and returns its log."""
    (mlcl.folder / "fast").touch()
    assert mlcl("resume", "lab-1", *options).out == "lab-1\n"
    answer = mlcl("logs", "-f", "lab-1")
    assert answer.status == 0, answer.err
    (entry,) = mlcl("list", "--json").json["jobs"]
    assert (entry["id"], entry["state"], entry["attempts"]) == ("lab-1", "COMPLETE", 2)
    return answer.out


def test_a_run_is_submitted_watched_stopped_and_resumed(mlcl, service, monkeypatch):
    submit(mlcl, "run", "job.yaml")
    follower = mlcl.start("logs", "-f", "lab-1")
    until(lambda: f"epoch 1/{EPOCHS}" in follower.out.read_text())
    stop(mlcl, "lab-1")
    assert follower.answer().status == 130
    answer = mlcl("submit", "--id", "lab-1", "run", "job.yaml")
    assert (answer.status, "this id is taken; found: lab-1: STOPPED" in answer.err) == (2, True)
    log = resume(mlcl)
    assert f"epoch {EPOCHS}/{EPOCHS}" in log
    assert f"epoch 1/{EPOCHS} " not in log
    assert runs_of(mlcl, service, "lab-1", monkeypatch) == [("run", "COMPLETE")]
    assert mlcl("down").status == 0


def test_a_sweep_goes_on_with_more_trials(mlcl, service, monkeypatch):
    submit(mlcl, "sweep", "job.yaml", "space.yaml", "--trials", "2", "--fresh")
    # The log may name either trial first.
    until(lambda: re.search("trial . RUNNING", mlcl("logs", "lab-1").out))
    sweep = RunFolders(mlcl.home, "sweeps").root / "lab-1"
    # The log may name a training before its first epoch has ended.
    until(lambda: Ledger(sweep).history)
    stop(mlcl, "job-space")
    intermediates = [entry.intermediate for entry in Ledger(sweep).entries.values()]
    assert any(intermediates)
    assert "sweep job-space COMPLETE" in resume(mlcl, "--trials", "3")
    entries = list(Ledger(sweep).entries.values())
    assert [
        entry.intermediate[: len(before)] for entry, before in zip(entries, intermediates, strict=False)
    ] == intermediates
    keys = ["sweep", "trial-0000", "trial-0001", "trial-0002"]
    assert runs_of(mlcl, service, "lab-1", monkeypatch) == [(key, "COMPLETE") for key in keys]
    assert mlcl("down").status == 0


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_call_from_python_waits_for_its_job(mlcl, service, monkeypatch):
    (mlcl.folder / "fast").touch()
    monkeypatch.chdir(mlcl.folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    lines, file = [], mlcl.home / "service" / "cluster.yaml"
    options = {"home": mlcl.folder / "python", "on": file, "progress": lines.append}
    report = run("job.yaml", {"train.epochs": 3}, **options)
    assert (report.state, report.folder) == ("COMPLETE", mlcl.home / "runs" / report.id)
    assert [line for line in lines if line.startswith("epoch 3/3")]
    assert report.metrics == json.loads((report.folder / "result.json").read_text())
    with pytest.raises(UserError, match=r"key on: the cluster refuses the command.*not.there"):
        run("job.yaml", {"data.path": "/not/there"}, **options)
    assert runs_of(mlcl, service, report.id, monkeypatch) == [("run", "COMPLETE")]
    assert mlcl("down").status == 0
