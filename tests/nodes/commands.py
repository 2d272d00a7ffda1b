"""Commands of mlcl on a cluster, what they have recorded so far, and their processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import ledgers
import psutil
import yaml
from builders import job_tree
from e2e.traces import Trace, trace
from mlflow import MlflowClient
from mlflow.entities import Run
from nodes.cluster import CLONE, Cluster
from nodes.hosts import Host
from patience import until

T = TypeVar("T")

EPOCHS = 100
"""The epochs of a training that lasts some seconds, so that a test can interrupt it."""
SINGLE = {
    "space": {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "train.lr": {"log_float": [0.0005, 0.05]},
        "evaluation.knn.k": {"choice": [1, 3]},
    },
    "search": {"sampler": "random", "scheduler": "none"},
}
"""A space whose trials do not depend on each other's settings or ends, since two run at once."""
GROUP = {
    "space": SINGLE["space"] | {"objective.heads.*.weight": {"simplex": {"total": [0.1, 0.6]}}},
    # No pruning: a pruned trial of several workers may log more points before its workers stop.
    "search": {"scheduler": "none"},
}
"""A space for sweeps that run one trial at a time."""
SWEEP = ("sweep", "job.yaml", "space.yaml", "--trials", "3", "--cpus", "1")
TRAINING = ("ray::ImplicitFunc", "ray::RayTrainW")
"""The names that Ray gives the processes of trials and of their workers."""


class Work:
    """A folder with a job and a space, and a command that uses them."""

    def __init__(self, folder: Path, data: Path, space: dict[str, Any] = SINGLE, **train: Any) -> None:
        self.folder, self.home = folder, folder / "outputs"
        folder.mkdir(exist_ok=True)
        # The path is relative, so that the job, and with it every hash, is the same in any folder.
        (folder / "data").symlink_to(data)
        job = job_tree(Path("data"), **{"epochs": EPOCHS, "lr": 0.001, "checkpoint_every": 10, **train})
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "space.yaml").write_text(yaml.safe_dump(space))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: Cluster, host: Host, *words: str) -> None:
        """Starts the command on a host."""
        self.process = cluster.command(host, self.folder, *words, "--json")

    def sweep(self, cluster: Cluster, host: Host) -> None:
        """Starts the sweep, with the same words every time."""
        self.start(cluster, host, *SWEEP)

    def run_here(self, *words: str) -> None:
        """Runs the command on this machine, without a cluster; fails if the command fails."""
        command = [sys.executable, "-m", "mlcl", *words, "--json"]
        environment = {**os.environ, "PYTHONPATH": str(CLONE)}
        answer = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=environment, check=False
        )
        assert answer.returncode == 0, answer.stderr[-3000:]

    def end(self) -> int:
        """Waits for the end of the command and returns its exit status."""
        process = self.process
        assert process is not None
        until(lambda: process.poll() is not None)
        return int(process.returncode)

    @property
    def seconds(self) -> float:
        """The seconds from the first event of the sweep to its last."""
        return float(self.events[-1]["at"] - self.events[0]["at"])

    @property
    def said(self) -> str:
        """The messages of the commands so far."""
        return (self.folder / "err.txt").read_text()

    @property
    def report(self) -> dict[str, Any]:
        """The report that the last command printed."""
        report: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return report

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in the complete lines of the sweep's ledger."""
        return ledgers.events(self.home)

    def until(self, event: str, count: int = 1, **content: Any) -> dict[str, Any]:
        """Waits for the `count`-th such event and returns it; fails if the command ends before."""
        fields = {"event": event, **content}

        def found() -> list[dict[str, Any]]:
            return [entry for entry in self.events if entry.items() >= fields.items()][count - 1 : count]

        return self._while_it_runs(found)[0]

    def until_begun_again(self) -> dict[str, Any]:
        """Waits until a training has begun a second time, and returns the event."""

        def found() -> list[dict[str, Any]]:
            begin_events = [event for event in self.events if event["event"] == "begin"]
            keys = [event["key"] for event in begin_events]
            return [event for index, event in enumerate(begin_events) if event["key"] in keys[:index]]

        return self._while_it_runs(found)[0]

    def until_said(self, text: str) -> None:
        """Waits for a message of the command."""
        self._while_it_runs(lambda: text in self.said)

    def _while_it_runs(self, condition: Callable[[], T]) -> T:
        def found() -> T:
            assert self.process is not None
            ended = self.process.poll() is not None
            answer = condition()
            assert answer or not ended, self.said[-3000:]
            return answer

        return until(found)

    @property
    def results(self) -> list[bytes]:
        """The contents of the files of a run that have its figures and its weights."""
        (folder,) = self.home.glob("runs/*")
        return [(folder / name).read_bytes() for name in ("result.json", "model/weights.safetensors")]

    @property
    def _runs(self) -> list[Run]:
        ids = [experiment.experiment_id for experiment in self._client.search_experiments()]
        return list(self._client.search_runs(ids))

    @property
    def _client(self) -> MlflowClient:
        return MlflowClient(f"sqlite:///{self.home}/mlflow.db")

    @property
    def running(self) -> list[str]:
        """The names of the runs that are RUNNING in MLflow."""
        return [str(run.info.run_name) for run in self._runs if run.info.status == "RUNNING"]

    @property
    def points(self) -> list[tuple[str, int]]:
        """The metric name and the step of each point that MLflow has of a run."""
        (run,) = self._runs
        histories = (self._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics)
        return sorted((point.key, point.step) for history in histories for point in history)

    @property
    def trace(self) -> Trace:
        """The trace of everything that the sweep has left."""
        return trace(self.home, f"sqlite:///{self.home}/mlflow.db")


def unordered(found: Trace) -> Trace:
    """Returns the trace of trials that ran at once, without the parts that depend on their order."""
    contents = {key: value for key, value in found.items() if key != "mlflow: SWEEP metric sweep/best"}
    return contents | {"ledger: order": sorted(found["ledger: order"])}


def training_on(host: Host) -> list[psutil.Process]:
    """Returns the processes on a host that train, with the process ids of the machine."""
    namespace = Path(f"/proc/{host.space.first}/ns/pid").readlink()
    processes = []
    for process in psutil.process_iter():
        try:
            is_on_host = Path(f"/proc/{process.pid}/ns/pid").readlink() == namespace
            if is_on_host and process.name().startswith(TRAINING):
                processes.append(process)
        except (psutil.Error, OSError):
            continue
    return processes
