"""Tests of the reports of one training of a sweep, also when it is started several times."""

import errno
import gc
import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from builders import tiny_job

from mlcl.config import dump_job
from mlcl.errors import UserError
from mlcl.service.engine.trial import ENDED, NOTE, REASON, RESUMED, VALUES, TrialTask, run_trial, train
from mlcl.tracking import RunLog, State
from mlcl.training.events import Diverged, Event, Stopped


@pytest.fixture
def task(world, tiny, tmp_path):
    RunLog.start(
        world.home, "log", uri="u", experiment="e", name="n", owner="o", params={}, tags={}, parent=None
    )
    return TrialTask(
        key="trial-0",
        job=dump_job(tiny_job(tiny)),
        folder=str(tmp_path / "trial"),
        home=str(world.home),
        log="log",
        metric="val/accuracy",
        scores=("val/accuracy", "val/macro_f1"),
        test=False,
        stop_file=str(tmp_path / "STOP"),
        cpus=1,
        gpus=0,
        cwd=".",
    )


FILES = {"embeddings.parquet", "model"}


@pytest.mark.parametrize(
    ("how", "kept", "logged"),
    [({}, FILES, FILES), ({"logged": False}, FILES, set()), ({"stored": "figures"}, set(), set())],
)
def test_embeddings_and_model_are_written_and_logged_as_asked(task, world, how, kept, logged):
    values = json.loads(played(replace(task, **how))[-1][VALUES])
    files = {path.name for path in Path(task.folder).iterdir()}
    assert files & {"result.json", *FILES} == {"result.json"} | kept
    log = RunLog.attach(world.home, task.log)
    assert {name for name in FILES if log.has_artifact(Path(task.folder) / name)} == logged
    assert played(replace(task, **how))[-1][VALUES] == json.dumps(values)


def test_libraries_are_collected_once_in_a_process_and_not_after_each_training(task, monkeypatch):
    reports: list = []
    frozen_counts: list[int] = []
    freeze = gc.freeze

    def count():
        freeze()
        frozen_counts.append(gc.get_freeze_count())

    monkeypatch.setattr("ray.tune.report", reports.append)
    monkeypatch.setattr(gc, "freeze", count)
    gc.unfreeze()
    try:
        run_trial(task.config())
        run_trial(replace(task, folder=f"{task.folder}-2").config())
        (frozen_count,) = frozen_counts
        # A frozen object is still freed with its last reference, so that the count may fall.
        assert (frozen_count > 10_000, 10_000 < gc.get_freeze_count() <= frozen_count) == (True, True)
    finally:
        gc.unfreeze()
    assert [report[ENDED] for report in reports if report[ENDED]] == [State.COMPLETE] * 2


def test_a_share_of_a_gpu_that_is_not_there_fails_the_trial(task, tiny, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    job = dump_job(tiny_job(tiny, "train.device=auto"))
    (last_report,) = played(replace(task, job=job, gpus=0.5))
    assert (last_report[ENDED], "no GPU is visible" in last_report[REASON]) == (State.FAILED, True)


class Killed(BaseException):
    pass


def played(task, stop_after=math.inf):
    """Returns the reports of one process, without RESUMED ones; the process may be killed during a report."""
    reports = []

    def report(result):
        if RESUMED in result:
            return
        reports.append(result)
        if len(reports) > stop_after:
            raise Killed

    with suppress(Killed):
        train(task, report)
    return reports


def epochs(reports):
    return [report["epoch"] for report in reports if not report["ended"]]


def test_a_task_travels_as_one_string(task):
    config = task.config()
    assert list(config) == ["payload"]
    assert TrialTask.of(json.loads(json.dumps(config))) == task


def test_every_validation_but_the_last_then_the_end(task, world):
    reports = played(task)
    assert epochs(reports) == [1, 2, 3]
    assert [r["ended"] for r in reports] == ["", "", "", "COMPLETE"]
    job = tiny_job(task.job["data"]["path"])
    assert [r["score"] for r in reports[:3]] == [world.formula.score(job, epoch) for epoch in (1, 2, 3)]
    figures = world.formula.figures(job)
    assert json.loads(reports[-1]["values"]) == [figures["val/accuracy"], figures["val/macro_f1"]]


def test_a_later_process_of_a_finished_training_reports_everything_again(task, world):
    first_reports, epoch_count = played(task), len(world.formula.trained)
    assert played(task) == first_reports
    assert len(world.formula.trained) == epoch_count


@pytest.mark.parametrize("count", range(4))
def test_a_killed_process_is_gone_on_from(task, world, count):
    first_reports = played(task, stop_after=count)
    second_reports = played(task)
    assert second_reports[: len(first_reports)] == first_reports
    assert epochs(second_reports) == [1, 2, 3]
    assert second_reports[-1]["ended"] == "COMPLETE"
    assert len(world.formula.trained) <= 5  # only the epoch of the kill may be trained twice


def test_a_training_that_is_resumed_reports_its_steps_first(task, world):
    played(task, stop_after=2)
    reports = []
    train(task, reports.append)
    epoch_count = len(world.formula.trained) - len(epochs(reports[1:]))
    assert (epoch_count > 0, reports[0][ENDED], [RESUMED in report for report in reports].count(True)) == (
        True,
        "",
        1,
    )
    assert 0 < reports[0][RESUMED] < 40


def test_a_failure_is_reported_with_its_reason(task, world):
    world.formula.fails = lambda _job, epoch: epoch == 2
    reports = played(task)
    assert reports[-1] == {"ended": "FAILED", "reason": "Diverged: the loss is not finite [step 20]"}
    assert len(reports) == 2
    assert played(task) == reports


def test_the_stop_file_ends_it_at_its_next_checkpoint(task, world, tmp_path):
    world.formula.before = lambda _job, epoch: epoch == 2 and (tmp_path / "STOP").touch()
    assert played(task)[-1] == {"ended": "STOPPED", "reason": ""}
    assert len(world.formula.trained) == 2
    assert played(task)[-1] == {"ended": "STOPPED", "reason": ""}
    assert len(world.formula.trained) == 2  # no further epoch is trained
    (tmp_path / "STOP").unlink()
    assert played(task)[-1]["ended"] == "COMPLETE"
    assert [epoch for _, epoch in world.formula.trained] == [1, 2, 3, 4]


def test_a_two_phase_job_is_judged_by_its_neighbours(task, world, monkeypatch):
    formula = world.formula.__call__

    def neighbours(*arguments, listener, **options):
        def renamed(event):
            metrics = {name.replace("val/", "knn/val/"): value for name, value in event.metrics.items()}
            listener(event.__class__(**{**vars(event), "metrics": metrics}))

        return formula(*arguments, listener=renamed, **options)

    monkeypatch.setattr("mlcl.service.engine.trial.run_experiment", neighbours)
    reports = played(task)
    assert epochs(reports) == [1, 2, 3]
    assert reports[-1]["ended"] == "COMPLETE"


def told(task, monkeypatch, *, note="", error=None):
    """Returns the reports of a training that sends a note first and ends with an error."""

    def training(*_arguments, listener, **_options):
        listener(Event("note", 0, 4, 0, 40, note=note))
        raise error

    monkeypatch.setattr("mlcl.service.engine.trial.run_experiment", training)
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.4")
    reports = []
    train(task, reports.append)
    return reports


def test_notes_of_a_training_are_reported(task, monkeypatch):
    note = "rank 1 on 10.0.0.2: 3.5 times slower than the others, which wait for it"
    first_report, last_report = told(task, monkeypatch, note=note, error=Stopped())
    assert (first_report, last_report[ENDED]) == ({NOTE: note, ENDED: ""}, State.STOPPED)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RuntimeError("CUDA error: uncorrectable ECC error"),
            "RuntimeError: CUDA error: uncorrectable ECC error "
            "(on 10.0.0.4: the memory of its GPU is faulty (ECC): take the node out)",
        ),
        (KeyError("x"), "KeyError: 'x' (on 10.0.0.4)"),
        (
            UserError("no GPU is visible", key="train.device"),
            "key train.device: no GPU is visible (on 10.0.0.4)",
        ),
        (Diverged("the loss is not finite"), "Diverged: the loss is not finite"),
    ],
)
def test_a_failure_names_its_node_unless_it_would_be_the_same_on_any(task, monkeypatch, error, reason):
    assert told(task, monkeypatch, error=error)[-1] == {ENDED: State.FAILED, REASON: reason}


def test_a_full_disk_stops_a_training_with_a_reason(task, monkeypatch):
    error = OSError(errno.ENOSPC, "No space left on device", "checkpoint.pt")
    last_report = told(task, monkeypatch, error=error)[-1]
    assert (last_report[ENDED], "No space left on device: 'checkpoint.pt'" in last_report[REASON]) == (
        State.STOPPED,
        True,
    )


def test_the_failure_of_a_group_does_not_name_the_node_of_its_driver(task, monkeypatch):
    def group(*_):
        raise RuntimeError("rank 1 failed")

    monkeypatch.setattr("mlcl.service.engine.trial._train_group", group)
    reports, job = [], dump_job(tiny_job(task.job["data"]["path"], workers=2))
    train(replace(task, job=job), reports.append)
    assert reports == [{ENDED: State.FAILED, REASON: "RuntimeError: rank 1 failed"}]
