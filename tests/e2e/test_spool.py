"""Tests that a run neither waits for a lost tracking server nor loses a point when the server comes back."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
from mlflow import MlflowClient
from patience import until


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(uri):
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def server(folder, port):
    """Starts an MLflow server and yields a function that kills it; the server is killed at the end anyway."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/store.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        start_new_session=True,
    )

    def kill():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    try:
        until(lambda: answers(f"http://127.0.0.1:{port}"))
        yield kill
    finally:
        kill()


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_has_every_point_once(mlcl, tmp_path, monkeypatch):
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"http://127.0.0.1:{port}")
    with server(tmp_path, port) as kill:
        process = mlcl.start("run", mlcl.job, "train.epochs=200")
        until(lambda: list(mlcl.home.glob("runs/*/checkpoint.pt")))
        kill()
        answer = process.answer()
    assert answer.status == 0, answer.err
    assert "1 log is kept in" in answer.err
    assert "dashboard: open http" in answer.out
    with server(tmp_path, port):
        after = mlcl("run", mlcl.job, "train.epochs=1", "--json")
        assert (after.status, after.json["undelivered"]) == (0, 0), after.err
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("tiny").experiment_id
        runs = {run.data.params["train.epochs"]: run for run in client.search_runs([experiment])}
        assert sorted(runs) == ["1", "200"]
        run = runs["200"]
        assert (run.info.status, run.data.tags["mlcl.state"]) == ("FINISHED", "COMPLETE")
        for metric in ("train/loss", "val/accuracy"):
            steps = [point.step for point in client.get_metric_history(run.info.run_id, metric)]
            assert steps == [3 * epoch for epoch in range(1, 201)], metric
        artifacts = {a.path for a in client.list_artifacts(run.info.run_id)}
        assert {"job.yaml", "result.json", "embeddings.parquet", "model"} <= artifacts
