"""Tests of one run in this process: its log, and its state after stops, failures and kills."""

import errno

import pytest
import torch
from builders import tiny_job

from mlcl.errors import MachineError, UserError
from mlcl.results.provenance import log_start
from mlcl.service import run_job as run_job_module
from mlcl.service.ray import ddp_group
from mlcl.service.run_job import run_job
from mlcl.store import RunFolders
from mlcl.tracking import Provenance, State, Tracker, tracking_uri
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.log import RunLog
from mlcl.tracking.uri import stored_uri
from mlcl.training import loop
from mlcl.training.checkpoint import save_checkpoint
from mlcl.training.events import Stopped
from mlcl.training.job_data import JobData


def quiet(_event):
    return


def stop_after(epochs):
    """Returns a listener that ends the run after some epochs, as a stop does."""

    def listen(event):
        if event.kind == "saving" and event.epoch >= epochs:
            raise Stopped

    return listen


def run(job, home, listener=quiet, **how):
    return run_job(job, home=home, listener=listener, **how)


def runs(home):
    client = Tracker(home).client
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


@pytest.fixture
def job(tiny):
    return tiny_job(tiny, epochs=2)


def test_a_run_is_delivered_when_the_call_returns(job, tmp_path):
    report = run(job, tmp_path)
    (mlflow_run,) = runs(tmp_path)
    assert (report.state, report.mlflow_run_id, report.undelivered) == (
        State.COMPLETE, mlflow_run.info.run_id, 0
    )  # fmt: skip
    assert mlflow_run.data.tags["mlcl.log"] == report.log == report.id
    assert RunFolders(tmp_path).find_unfinished("j", "d") is None


def test_mlflow_shows_the_figures_of_the_best_epoch_and_keeps_the_curve(tiny, tmp_path):
    """Tests a job with patience, whose last epoch is not its best one."""
    scores = []

    def listen(event):
        if event.kind == "validation":
            scores.append(event.metrics["val/accuracy"])

    job = tiny_job(tiny, "evaluation.metric=val/accuracy", patience=2, epochs=12, lr=0.02)
    report = run(job, tmp_path, listen)
    (mlflow_run,) = runs(tmp_path)
    metrics = mlflow_run.data.metrics
    assert {name: metrics[name] for name in report.metrics} == report.metrics
    assert metrics["val/accuracy"] == max(scores)
    assert metrics["best/epoch"] == 1 + scores.index(max(scores)) < len(scores)
    history = Tracker(tmp_path).client.get_metric_history(mlflow_run.info.run_id, "val/accuracy")
    assert [point.value for point in history] == [
        *scores,
        *([max(scores)] if scores[-1] < max(scores) else []),
    ]


def test_a_job_that_is_resumed_goes_on_with_the_run_that_fresh_began(job, tmp_path, monkeypatch):
    other = run(job, tmp_path, stop_after(1))
    monkeypatch.setenv("MLCL_JOB", "lab-7")
    first = run(job, tmp_path, stop_after(1), fresh=True)
    resumed_report = run(job, tmp_path, fresh=True)
    assert (first.id, resumed_report.id) == ("lab-7", "lab-7")
    assert other.id != first.id
    assert (first.state, resumed_report.state) == (State.STOPPED, State.COMPLETE)
    assert run(job, tmp_path, fresh=True).id not in (other.id, first.id)


def test_a_stopped_run_goes_on_in_its_log_and_in_a_new_one_elsewhere(job, tmp_path, monkeypatch):
    first = run(job, tmp_path, stop_after(1))
    second = run(job, tmp_path, stop_after(2))
    assert (first.state, second.state) == (State.STOPPED, State.STOPPED)
    assert first.log == second.log
    default_uri = tracking_uri(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    other_report = run(job, tmp_path)
    assert (other_report.id, other_report.log) == (first.id, f"{first.id}-2")
    (other_run,) = runs(tmp_path)
    assert other_run.info.status == "FINISHED"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    (old_run,) = runs(tmp_path)
    assert old_run.info.status == "KILLED"
    assert log_start(tmp_path, first.log)["uri"] == stored_uri(default_uri, tmp_path)


def test_a_run_whose_checkpoint_cannot_be_read_now_is_stopped_and_goes_on(tiny, tmp_path, monkeypatch):
    job = tiny_job(tiny, epochs=3, checkpoint_every=1)
    first = run(job, tmp_path, stop_after(2))

    def failing(*_args, **_options):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", failing)
        with pytest.raises(
            MachineError, match=r"checkpoint\.pt cannot be read now: .*Input/output error; the same"
        ):
            run(job, tmp_path)
    (mlflow_run,) = runs(tmp_path)
    assert (mlflow_run.info.status, mlflow_run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")
    report = run(job, tmp_path)
    assert (report.id, report.state, report.resumed) == (first.id, State.COMPLETE, True)


def test_a_run_whose_disk_fills_up_is_stopped_and_goes_on(tiny, tmp_path, monkeypatch):
    job = tiny_job(tiny, epochs=3, checkpoint_every=1)
    saved_epochs = []

    def full(path, state):
        if len(saved_epochs) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        saved_epochs.append(state["position"]["epoch"])
        save_checkpoint(path, state)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", full)
        with pytest.raises(OSError, match="No space left"):
            run(job, tmp_path)
    (mlflow_run,) = runs(tmp_path)
    assert (mlflow_run.info.status, mlflow_run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")
    report = run(job, tmp_path)
    assert (report.id, report.state, report.resumed) == (
        mlflow_run.data.tags["mlcl.id"],
        State.COMPLETE,
        True,
    )


def test_a_run_that_was_deleted_in_mlflow_goes_on_in_a_new_one(job, tmp_path):
    first = run(job, tmp_path, stop_after(1))
    client = Tracker(tmp_path).client
    client.delete_run(first.mlflow_run_id)
    messages = []
    resumed_report = run(job, tmp_path, stop_after(2), announce=messages.append)
    assert any("does not take the log" in text for text in messages)
    last_report = run(job, tmp_path)
    assert (resumed_report.id, last_report.id) == (first.id, first.id)
    assert last_report.log == f"{first.id}-2"
    (mlflow_run,) = runs(tmp_path)
    assert mlflow_run.info.status == "FINISHED"


def test_a_kill_between_record_and_log_leaves_nothing_running(job, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_args, **_options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "start", killed)
        with pytest.raises(Killed):
            run(job, tmp_path)
    (before,) = RunFolders(tmp_path).records()
    assert before[1].state is State.RUNNING
    report = run(job, tmp_path)
    assert (report.id, report.state) == (before[1].id, State.COMPLETE)
    assert len(runs(tmp_path)) == 1


def test_a_deleted_experiment_is_said_before_anything_starts(job, tmp_path):
    tracker = Tracker(tmp_path)
    tracker.client.delete_experiment(tracker.experiment(job.experiment))
    with pytest.raises(UserError, match="deleted in MLflow"):
        run(job, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_log_of_a_job_has_the_parameters_given_and_those_chosen_later(job, tmp_path):
    logs = JobLogs(tmp_path, "sqlite:///x.db", Provenance({}, ""), lambda _: None)
    log = logs.start(
        job,
        JobData.of(job, tmp_path).dataset.info,
        id="trial",
        name="trial 0",
        owner="sweep",
        parent="sweep",
        tags={"mlcl.kind": "trial"},
        params={"evaluation.knn.lambda": "0.5"},
    )
    log.log_params({"evaluation.knn.k": "3"})
    text = (tmp_path / "logs" / "trial" / "log.jsonl").read_text()
    assert '"kind":"params","values":{"evaluation.knn.k":"3"}' in text
    assert "train.lr" not in text


def test_a_training_on_a_cluster_is_placed_by_ray_with_its_share(job, tmp_path, monkeypatch):
    """Tests that Ray places a training on a cluster with its share, since the command's node has no GPU."""
    calls = []

    def run_group(group_job, *_args, share, **_):
        calls.append((group_job, share))
        return {"val/accuracy": 0.5}

    monkeypatch.setattr(ddp_group, "run_group", run_group)
    monkeypatch.setattr(
        run_job_module, "pick_device", lambda *_, **__: pytest.fail("the head's device is asked")
    )
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    report = run(job, tmp_path, cpus=4, gpus=0.5)
    assert (report.state, report.metrics) == (State.COMPLETE, {"val/accuracy": 0.5})
    assert calls == [(job, ddp_group.Share(4, 0.5))]


def test_a_baseline_is_fitted_by_the_command_on_a_cluster_too(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(ddp_group, "run_group", lambda *_, **__: pytest.fail("a group was started"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert run(tiny_job(tiny, "baseline=majority"), tmp_path).state is State.COMPLETE


@pytest.mark.slow
def test_a_group_of_one_worker_trains_as_this_process(job, tmp_path):
    report = run(job, tmp_path / "here")
    folder = tmp_path / "group"
    folder.mkdir()
    metrics = ddp_group.run_group(job, folder, None, tmp_path / "home", quiet, lambda: False)
    assert metrics.keys() == report.metrics.keys()
    for name in ("val/accuracy", "test/accuracy", "test/macro_f1"):
        assert metrics[name] == report.metrics[name]
    process_weights, group_weights = (
        (run_folder / "model" / "weights.safetensors").read_bytes() for run_folder in (report.folder, folder)
    )
    assert process_weights == group_weights


def test_a_gpu_that_is_asked_for_and_not_there_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="no GPU is visible"):
        run(tiny_job(tiny, "train.device=auto"), tmp_path, gpus=1)
    assert not (tmp_path / "runs").exists()
