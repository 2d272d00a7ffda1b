"""Tests of a job with a plugin file, which trainings run, which the run keeps, and which no report runs."""

import os

import pytest
import yaml

PLUGIN = '''"""Dice, and a line in a file whenever this is run."""

import os

from mlcl.losses import OverlapRule, overlap_loss

with open(os.environ["RAN"], "a") as file:
    file.write("ran\\n")


def dice_rule():
    return OverlapRule(lambda counts: 2 * counts.shared / (counts.anchor_size + counts.candidate_size))


DICE = overlap_loss("dice", dice_rule, summary="by the Dice coefficient", source="Dice 1945")
'''


@pytest.fixture
def ran(mlcl, monkeypatch):
    """Returns a function that counts how often the job's plugin was run."""
    (mlcl.folder / "dice.py").write_text(PLUGIN)
    tree = yaml.safe_load(mlcl.job.read_text())
    tree["objective"]["heads"] = {"tags": {"loss": "dice", "labels": "tags", "weight": 0.3}}
    mlcl.write_job(tree | {"plugins": ["dice.py"]})
    file = mlcl.folder / "ran"
    file.touch()
    monkeypatch.setitem(os.environ, "RAN", str(file))
    return lambda: len(file.read_text().splitlines())


@pytest.mark.slow
def test_two_workers_train_with_it(mlcl, ran):
    answer = mlcl("run", mlcl.job, "train.workers=2", "train.epochs=2", "--json")
    assert answer.status == 0, answer.err
    assert ran() >= 3  # once in the command and once in each worker


def test_an_export_needs_the_run_alone(mlcl, ran):
    answer = mlcl("run", mlcl.job, "train.epochs=2", "--json")
    assert answer.status == 0, answer.err
    (run,) = mlcl.runs()
    assert run.data.params["plugins"].startswith("['dice.py sha256:")
    (mlcl.folder / "dice.py").unlink()
    n_runs = ran()
    export_answer = mlcl("export", answer.json["id"], "--to", mlcl.folder / "model", "--json")
    assert export_answer.status == 0, export_answer.err
    assert ran() > n_runs


@pytest.mark.slow
def test_a_sweep_chooses_it_and_its_report_does_not_run_it(mlcl, ran):
    space = mlcl.folder / "space.yaml"
    choice = {"space": {"objective.heads.tags.loss": {"choice": ["any", "dice"]}}}
    space.write_text(yaml.safe_dump(choice | {"search": {"sampler": "brute_force", "scheduler": "none"}}))
    answer = mlcl("sweep", mlcl.job, space, "--trials", 2, "train.epochs=1", "--json")
    assert answer.status == 0, answer.err
    assert [trial["state"] for trial in answer.json["trials"]] == ["COMPLETE", "COMPLETE"]
    n_runs = ran()
    assert n_runs >= 2
    report = mlcl("report", answer.json["name"], "--json")
    assert report.status == 0, report.err
    assert ran() == n_runs
    page = (mlcl.folder / report.json["page"]).read_text()
    assert "its job has plugin files, which are not run here" in page
