"""Tests of the two call paths in docs/architecture.md, to the first step and from a score to MLflow."""

import fcntl
import sys
from pathlib import Path

import pytest
import torch
import yaml
from builders import job_tree
from mlflow import MlflowClient
from sweeps import World
from typer.testing import CliRunner

import mlcl
from mlcl.cli.main import app
from mlcl.service.engine import command, engine, trial, tune_executor
from mlcl.service.search import search_source
from mlcl.tracking.delivery import Delivery
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

ROOT = Path(mlcl.__file__).parent
SPACE = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {scheduler: none}\n"


def ours():
    """Returns the functions of mlcl on the stack, the outermost first."""
    names, frame = [], sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and not frame.f_code.co_name.startswith("<"):
            names.append(f"{file.relative_to(ROOT)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names[::-1]


def tune(callbacks, **_):
    """Asks for trainings through our searcher, as Ray Tune does, and runs them in this process."""
    guard = tune_executor._Guard(callbacks, tune_executor.nullcontext)
    feed, scheduler = tune_executor._Feed(guard), tune_executor._Scheduler(guard)
    while isinstance(config := feed.suggest("a trial"), dict):
        task = trial.TrialTask.of(config)
        callbacks.begin(task.key)
        last_result = {}

        def report(result, config=config, last_result=last_result):
            if result[trial.ENDED]:
                last_result.update(result)
            else:
                scheduler.on_trial_result(None, SimpleTrial(config), result)

        trial.train(task, report)
        callbacks.end(task.key, last_result)


class SimpleTrial:
    """A stand-in for Ray Tune's trial with the attributes that our scheduler reads."""

    def __init__(self, config):
        self.config = config


@pytest.fixture
def ways(tiny, tmp_path, monkeypatch):
    """Runs a sweep and returns the functions on the stack at the first step, draw, log entry and delivery."""
    home, stacks = tmp_path / "home", {}
    World(home, monkeypatch, f"sqlite:///{home}/mlflow.db")

    def watched(owner, name, moment, within=""):
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            names = ours()
            if any(function.endswith(within) for function in names):
                stacks.setdefault(moment, names)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    monkeypatch.setattr(command, "Delivery", Delivery)
    monkeypatch.setattr(trial, "run_experiment", run_experiment)
    monkeypatch.setattr(trial, "JobData", JobData)
    monkeypatch.setattr(engine, "run_trainings", tune)
    watched(torch.optim.AdamW, "step", "step")
    watched(search_source, "draw_trial", "draw")
    watched(fcntl, "flock", "log", within=":_validate")  # `append` locks the file before it writes
    watched(MlflowClient, "log_batch", "delivery", within=":_log_metrics")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["sweep", tmp_path / "job.yaml", tmp_path / "space.yaml", "--trials", 1, "--no-baselines"]
    answer = CliRunner().invoke(app, [*map(str, words), "--home", str(home)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return stacks


def listed(root, first):
    """Returns the outer and the indented calls of the list in the docs that begins with `first`."""
    blocks = (root / "docs/architecture.md").read_text().split("```")[1::2]
    (lines,) = (block.strip().splitlines() for block in blocks if block.strip().startswith(first))
    outer_lines = [line for line in lines if not line.startswith(" ")]
    return outer_lines, [line.strip() for line in lines if line.startswith(" ")]


def test_from_the_command_to_the_first_step(ways, root):
    step, draw = listed(root, "cli/sweep.py:sweep")
    replaced_names = ["service/engine/tune_executor.py:run_trainings", "service/engine/trial.py:run_trial"]
    assert ways["step"] == [name for name in step if name not in replaced_names]
    assert [name for name in step if name in replaced_names] == replaced_names
    assert (callable(tune_executor.run_trainings), callable(trial.run_trial)) == (True, True)
    assert ways["draw"][-len(draw) :] == draw
    assert len(step) + len(draw) <= 15


def test_from_a_validation_to_mlflow(ways, root):
    log, thread = listed(root, "training/loop.py:_validate")
    assert ways["log"][-len(log) :] == log
    assert ways["delivery"] == thread
    assert len(log) + len(thread) <= 9
