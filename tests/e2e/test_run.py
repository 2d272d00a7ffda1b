"""Tests of `mlcl run`: complete, stopped, killed, resumed and failed runs, and their records in the store."""

import os
import signal
import time

import pytest
from patience import until


def checkpoint(mlcl):
    return next(iter(mlcl.home.glob("runs/*/checkpoint.pt")), None)


def without_times(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def test_a_run_end_to_end(mlcl):
    answer = mlcl("run", mlcl.job, "--json", "train.epochs=8")
    assert answer.status == 0, answer.err
    report = answer.json
    assert report["state"] == "COMPLETE"
    assert report["metrics"]["test/accuracy"] > 0.8
    (run,) = mlcl.runs()
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlcl.state"] == "COMPLETE"
    assert run.data.tags["mlcl.id"] == report["id"]
    assert run.data.params["objective.heads.topic.temperature"] == "0.5"
    assert run.data.metrics["test/accuracy"] == report["metrics"]["test/accuracy"]
    steps = [m.step for m in mlcl.client.get_metric_history(run.info.run_id, "train/loss")]
    assert steps == [3 * epoch for epoch in range(1, 9)]
    artifacts = {a.path for a in mlcl.client.list_artifacts(run.info.run_id)}
    assert {"job.yaml", "result.json", "embeddings.parquet", "model"} <= artifacts


def test_the_printed_table_and_the_way_to_the_dashboard(mlcl):
    answer = mlcl("run", mlcl.job, "train.epochs=1")
    assert answer.status == 0
    assert "knn_best/accuracy" in answer.out
    assert "mlflow ui --backend-store-uri sqlite:///" in answer.out
    assert "epoch 1/1" in answer.err


@pytest.mark.slow
def test_stopped_with_ctrl_c_then_killed_and_gone_on_with(mlcl):
    settings = ("train.epochs=300", "train.checkpoint_every=7", "train.seed=5", "--json")
    process = mlcl.start("run", mlcl.job, *settings)
    until(lambda: checkpoint(mlcl))
    os.killpg(process.pid, signal.SIGINT)
    stopped_answer = process.answer()
    assert stopped_answer.status == 130, stopped_answer.err
    assert stopped_answer.json["state"] == "STOPPED"
    (run,) = mlcl.runs()
    assert (run.info.status, run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")

    modified_ns = checkpoint(mlcl).stat().st_mtime_ns
    process = mlcl.start("run", mlcl.job, *settings)
    # A listing of the folder may miss a file that is being replaced.
    until(lambda: (file := checkpoint(mlcl)) is not None and file.stat().st_mtime_ns > modified_ns)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.answer().status == -signal.SIGKILL

    resumed_answer = mlcl("run", mlcl.job, *settings)
    assert resumed_answer.status == 0, resumed_answer.err
    assert resumed_answer.json["resumed"]
    (run,) = mlcl.runs()
    assert (run.info.status, run.data.tags["mlcl.state"]) == ("FINISHED", "COMPLETE")
    for metric in ("train/loss", "val/accuracy"):
        steps = [point.step for point in mlcl.client.get_metric_history(run.info.run_id, metric)]
        # Points that the killed command left undelivered are logged later, with later timestamps.
        assert sorted(steps) == [3 * epoch for epoch in range(1, 301)], metric
    assert not list(mlcl.home.rglob("*.partial"))
    fresh_answer = mlcl("run", mlcl.job, *settings, "--fresh")
    assert without_times(fresh_answer.json["metrics"]) == without_times(resumed_answer.json["metrics"])
    assert len(mlcl.runs()) == 2


def test_ctrl_c_while_the_results_are_written_down_leaves_one_state(mlcl):
    process = mlcl.start("run", mlcl.job, "--json", "train.epochs=2")
    until(lambda: next(iter(mlcl.home.glob("runs/*/result.json")), None))
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    answer = process.answer()
    (run,) = mlcl.runs()
    states = {("FINISHED", "COMPLETE"): 0, ("KILLED", "STOPPED"): 130}
    assert states[run.info.status, run.data.tags["mlcl.state"]] == answer.status


def test_a_diverging_run_is_failed_everywhere(mlcl):
    answer = mlcl("run", mlcl.job, "--json", "train.lr=1e30", "train.optimizer=sgd", "train.warmup=0")
    assert answer.status == 3
    assert answer.json["state"] == "FAILED"
    assert "loss is not finite at step" in answer.json["reason"]
    (run,) = mlcl.runs()
    assert (run.info.status, run.data.tags["mlcl.state"]) == ("FAILED", "FAILED")
    assert "not finite" in run.data.tags["mlcl.reason"]
    second_answer = mlcl("run", mlcl.job, "--json", "train.lr=1e30", "train.optimizer=sgd", "train.warmup=0")
    assert not second_answer.json["resumed"]


def test_two_workers_are_one_run(mlcl):
    settings = ("encoder.dropout=0", "train.epochs=3", "--json")
    one_worker = mlcl("run", mlcl.job, *settings)
    two_workers = mlcl("run", mlcl.job, "train.workers=2", *settings)
    assert two_workers.status == 0, two_workers.err
    for metric in ("val/accuracy", "test/accuracy", "knn/test/accuracy"):
        assert two_workers.json["metrics"][metric] == pytest.approx(
            one_worker.json["metrics"][metric], abs=0.05
        )
    runs = {run.data.params["train.workers"]: run for run in mlcl.runs()}
    losses = [
        [point.value for point in mlcl.client.get_metric_history(runs[n].info.run_id, "train/loss")]
        for n in "12"
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert runs["2"].data.tags["mlcl.state"] == "COMPLETE"
    parts = {item.path for item in mlcl.client.list_artifacts(runs["2"].info.run_id, "embeddings.parquet")}
    assert parts == {f"embeddings.parquet/part-{rank:05d}.parquet" for rank in range(2)}
    export_answer = mlcl("export", runs["2"].info.run_id, "--to", mlcl.home / "exported", "--json")
    assert export_answer.status == 0, export_answer.err
    assert (mlcl.home / "exported" / "datastore.parquet").is_file()


@pytest.mark.slow
def test_two_workers_stop_together_and_go_on(mlcl):
    settings = ("train.epochs=40", "train.workers=2", "--json")
    process = mlcl.start("run", mlcl.job, *settings)
    until(lambda: checkpoint(mlcl))
    # SIGTERM is what a scheduler sends; Ray has set its own signal handlers by now.
    os.kill(process.pid, signal.SIGTERM)
    stopped_answer = process.answer()
    assert stopped_answer.status == 130, stopped_answer.err
    assert stopped_answer.json["state"] == "STOPPED"
    resumed_answer = mlcl("run", mlcl.job, "train.epochs=40", "train.workers=2", "--json")
    assert resumed_answer.status == 0, resumed_answer.err
    assert resumed_answer.json["resumed"]
    (run,) = mlcl.runs()
    assert run.data.tags["mlcl.state"] == "COMPLETE"
