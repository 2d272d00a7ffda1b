"""mlcl's commands on a cluster: what they have written down so far, and their processes."""

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
"""Some seconds of training, for something to happen in."""
SINGLE = {
    "space": {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "train.lr": {"log_float": [0.0005, 0.05]},
        "evaluation.knn.k": {"choice": [1, 3]},
    },
    "search": {"sampler": "random", "scheduler": "none"},
}
"""Neither a trial's settings nor its end hang on the others: two at once may end in any order."""
GROUP = {
    "space": SINGLE["space"] | {"objective.heads.*.weight": {"simplex": {"total": [0.1, 0.6]}}},
    # Without pruning: until its workers hear that it is pruned, a trial of several may log some points more.
    "search": {"scheduler": "none"},
}
"""For one trial at a time."""
SWEEP = ("sweep", "job.yaml", "space.yaml", "--trials", "3", "--cpus", "1")
TRAINING = ("ray::ImplicitFunc", "ray::RayTrainW")
"""Ray's names of the processes of trials and of their workers."""


class Work:
    """A folder with a job and a space in it, and a command on them."""

    def __init__(self, folder: Path, data: Path, space: dict[str, Any] = SINGLE, **train: Any) -> None:
        self.folder, self.home = folder, folder / "outputs"
        folder.mkdir(exist_ok=True)
        # The job, and with it every hash, is the same in any folder.
        (folder / "data").symlink_to(data)
        job = job_tree(Path("data"), **{"epochs": EPOCHS, "lr": 0.001, "checkpoint_every": 10, **train})
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "space.yaml").write_text(yaml.safe_dump(space))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: Cluster, host: Host, *words: str) -> None:
        """The command, on a host."""
        self.process = cluster.command(host, self.folder, *words, "--json")

    def sweep(self, cluster: Cluster, host: Host) -> None:
        """The sweep, as it is typed every time."""
        self.start(cluster, host, *SWEEP)

    def run_here(self, *words: str) -> None:
        """Runs the command on this machine, without a cluster. Fails where it does."""
        command = [sys.executable, "-m", "mlcl", *words, "--json"]
        environment = {**os.environ, "PYTHONPATH": str(CLONE)}
        answer = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=environment, check=False
        )
        assert answer.returncode == 0, answer.stderr[-3000:]

    def end(self) -> int:
        """Waits for the command; its exit status."""
        process = self.process
        assert process is not None
        until(lambda: process.poll() is not None)
        return int(process.returncode)

    @property
    def seconds(self) -> float:
        """From the first event of the sweep to its last."""
        return float(self.events[-1]["at"] - self.events[0]["at"])

    @property
    def said(self) -> str:
        """The messages of the commands so far."""
        return (self.folder / "err.txt").read_text()

    @property
    def report(self) -> dict[str, Any]:
        """The output of the last command."""
        report: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return report

    @property
    def events(self) -> list[dict[str, Any]]:
        """The whole lines of the sweep's ledger."""
        return ledgers.events(self.home)

    def until(self, event: str, count: int = 1, **content: Any) -> dict[str, Any]:
        """Waits for an event of the sweep, that many times; fails where the command ends before."""
        wanted = {"event": event, **content}

        def found() -> list[dict[str, Any]]:
            return [each for each in self.events if each.items() >= wanted.items()][count - 1 : count]

        return self._while_it_runs(found)[0]

    def until_begun_again(self) -> dict[str, Any]:
        """Waits until a training has begun that had begun before."""

        def found() -> list[dict[str, Any]]:
            begun = [event for event in self.events if event["event"] == "begin"]
            known = [event["key"] for event in begun]
            return [event for at, event in enumerate(begun) if event["key"] in known[:at]]

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
        """The figures of a run, but for times, and its weights."""
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
        """The runs that are RUNNING in MLflow."""
        return [str(run.info.run_name) for run in self._runs if run.info.status == "RUNNING"]

    @property
    def points(self) -> list[tuple[str, int]]:
        """The points that MLflow has of a run: each metric's name and step."""
        (run,) = self._runs
        histories = (self._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics)
        return sorted((point.key, point.step) for history in histories for point in history)

    @property
    def trace(self) -> Trace:
        """Everything that the sweep has left."""
        return trace(self.home, f"sqlite:///{self.home}/mlflow.db")


def unordered(found: Trace) -> Trace:
    """The trace of trials that ran at once: without what their order decides."""
    kept = {key: value for key, value in found.items() if key != "mlflow: SWEEP metric sweep/best"}
    return kept | {"ledger: order": sorted(found["ledger: order"])}


def training_on(host: Host) -> list[psutil.Process]:
    """The processes on a host that train, as the machine numbers them."""
    namespace = Path(f"/proc/{host.space.first}/ns/pid").readlink()
    found = []
    for process in psutil.process_iter():
        try:
            here = Path(f"/proc/{process.pid}/ns/pid").readlink() == namespace
            if here and process.name().startswith(TRAINING):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
