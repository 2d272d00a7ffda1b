"""Folders for commands: a new one with files, and one for all tests that also has a home with results."""

import json
import shutil
from types import SimpleNamespace

import pytest
import yaml
from builders import job_tree, tiny_job
from commands import mlcl
from ledgers import recorded
from sweeps import World

from mlcl.service.run_job import run_job
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State

HEADS = "objective.heads"
SPACE = f"space: {{{HEADS}.*.temperature: {{log_float: [0.05, 1.0]}}}}\nsearch: {{scheduler: none}}"
TABLE = {
    "title": "A [small] table",
    "experiment": "tiny",
    "source": "A paper, Table 1",
    "job": "../job.yaml",
    "metrics": {"Acc": "test/accuracy"},
    "tolerance": 5,
    "seeds": 3,
    "rows": {"Cold": {}, "Warm": {"set": {"train.epochs": 2}}},
    "columns": {"All": {}},
    "scales": {"small": {"about": "Less of it.", "seeds": 1}},
}
CLUSTER = {"ray": {"address": "http://head:8265"}, "storage": "/mnt/lab", "trial": {"cpu": 2, "gpu": 0.5}}


def write_files(folder, data):
    """Writes a job, a space, a table and a cluster file."""
    files = {"job": job_tree(data), "space": yaml.safe_load(SPACE), "tables/table": TABLE, "lab": CLUSTER}
    (folder / "tables").mkdir()
    for name, tree in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def plain_run(home, id, state=State.COMPLETE, parent=None, score=0.25):
    params = {"evaluation.metric": "val/accuracy"}
    RunLog.start(home, id, uri="u", experiment="e", name=id, owner=id, params=params, tags={}, parent=parent)
    folder = RunFolders(home).new_folder(id)
    recorded(folder, state)
    (folder.path / "result.json").write_text(json.dumps({"val/accuracy": score}))


@pytest.fixture
def folder(tmp_path, tiny, monkeypatch):
    """Returns the working folder, with files and without a home."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLCL_HOME", "MLCL_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    write_files(tmp_path, tiny)
    return tmp_path


@pytest.fixture(scope="session")
def lab(tiny, tmp_path_factory):
    """Returns a folder with files and a `home`, which no test changes.

    The home has an exported run, then a sweep, then a run that was killed, and a run of a table's cell, which
    is not listed as a run. The score of a trial is the mean over heads of exp(-log(tau / 0.2)^2), times a
    factor that depends on the epochs.
    """
    folder = tmp_path_factory.mktemp("lab")
    home = folder / "home"
    write_files(folder, tiny)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        report = run_job(tiny_job(tiny, epochs=3), home=home, listener=lambda _: None)
        answer = mlcl("export", report.id, "--to", folder / "model", "--register", "tiny", "--home", home)
        assert answer.status == 0, answer.err
        world = World(home, patch)
        world.run(world.plan(tiny_job(tiny), SPACE, trials=40, name="seek"))
    plain_run(home, "mlcl-99990101-000000-ab", State.RUNNING)
    plain_run(home, "mlcl-99980101-000000-cd", parent="a-table")
    (folder / "in.csv").write_text("id,text\na,vote noise1\nb,ball noise2\n")
    return SimpleNamespace(folder=folder, home=home, model=folder / "model", report=report)


@pytest.fixture
def home(lab, tmp_path):
    """Returns a copy of the lab's home, with a name that needs quotes and behind a link."""
    shutil.copytree(lab.home, tmp_path / "that's größer")
    (tmp_path / "home").symlink_to("that's größer")
    return tmp_path / "home"
