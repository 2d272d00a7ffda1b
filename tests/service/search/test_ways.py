"""The two ways of docs/architecture.md: from `mlcl sweep` to the first step, and from a score to MLflow."""

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
    """Our functions on the stack, the outermost first."""
    names, frame = [], sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and not frame.f_code.co_name.startswith("<"):
            names.append(f"{file.relative_to(ROOT)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names[::-1]


def tune(callbacks, **_):
    """Asks for trainings as Ray Tune does, through our searcher, and plays them in this process."""
    guard = tune_executor._Guard(callbacks, tune_executor.nullcontext)
    feed, scheduler = tune_executor._Feed(guard), tune_executor._Scheduler(guard)
    while isinstance(config := feed.suggest("a trial"), dict):
        task = trial.TrialTask.of(config)
        callbacks.begin(task.key)
        last = {}

        def report(result, config=config, last=last):
            if result[trial.ENDED]:
                last.update(result)
            else:
                scheduler.on_trial_result(None, SimpleTrial(config), result)

        trial.train(task, report)
        callbacks.end(task.key, last)


class SimpleTrial:
    """The attributes of a trial of Ray Tune that our scheduler reads."""

    def __init__(self, config):
        self.config = config


@pytest.fixture
def ways(tiny, tmp_path, monkeypatch):
    """The functions of ours that were on the stack at the first of each of these moments."""
    home, found = tmp_path / "home", {}
    World(home, monkeypatch, f"sqlite:///{home}/mlflow.db")

    def watched(owner, name, moment, within=""):
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            names = ours()
            if any(each.endswith(within) for each in names):
                found.setdefault(moment, names)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    monkeypatch.setattr(command, "Delivery", Delivery)
    monkeypatch.setattr(trial, "run_experiment", run_experiment)
    monkeypatch.setattr(trial, "JobData", JobData)
    monkeypatch.setattr(engine, "run_trainings", tune)
    watched(torch.optim.AdamW, "step", "step")
    watched(search_source, "draw_trial", "draw")
    watched(fcntl, "flock", "log", within=":_validate")  # by `append`, before it writes
    watched(MlflowClient, "log_batch", "delivery", within=":_metrics")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["sweep", tmp_path / "job.yaml", tmp_path / "space.yaml", "--trials", 1, "--no-baselines"]
    answer = CliRunner().invoke(app, [*map(str, words), "--home", str(home)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return found


DRAW = [
    "engine/tune_executor.py:suggest",
    "engine/tune_executor.py:ask",
    "engine/engine.py:next",
    "search/search_source.py:next",
    "search/search_source.py:next",
]
"""From Ray Tune to the settings of a trial."""


def test_from_the_command_to_the_first_step(ways):
    draw = [name.removeprefix("service/") for name in ways["draw"][-len(DRAW) :]]
    assert draw == DRAW
    assert ways["step"] == [
        "cli/sweep.py:sweep",
        "service/search/sweep.py:run_sweep",
        "service/engine/engine.py:run",
        # run_trainings and run_trial of service/engine are replaced here.
        "service/engine/trial.py:train",
        "training/experiment.py:run_experiment",
        "training/loop.py:run",
        "training/loop.py:_epoch",
        "training/loop.py:_step",
    ]
    assert len(ways["step"]) + 2 + len(DRAW) <= 15


def test_from_a_validation_to_mlflow(ways):
    log = [
        "training/loop.py:_validate",
        "training/loop.py:tell",
        "tracking/log.py:listen",
        "tracking/log.py:log_metrics",
        "tracking/log.py:append",
    ]
    thread = [
        "tracking/delivery.py:_work",
        "tracking/delivery.py:deliver",
        "tracking/sender.py:deliver",
        "tracking/sender.py:_metrics",
    ]
    assert ways["log"][-len(log) :] == log
    assert ways["delivery"] == thread
    assert len(log) + len(thread) <= 9
