"""Sweeps and tables whose processes are killed, at moments that are derived from an unbroken ledger."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ledgers
import psutil
import yaml
from builders import HEADS_SPACE, job_tree
from patience import until
from typing_extensions import Self

Target = Literal["worker", "driver", "ray", "mlflow"]
TARGETS: tuple[Target, ...] = ("worker", "driver", "ray", "mlflow")
POINTS: dict[str, tuple[Target, ...]] = {
    "sweep": tuple(target for target in TARGETS for _ in range(5)),
    "table": ("worker", "driver", "ray", "mlflow") * 2 + ("worker", "driver"),
}
"""The processes that are killed, one at each point."""
SPACE = {
    "space": {**HEADS_SPACE["space"], "train.lr": {"log_float": [0.0005, 0.05]}},
    "search": {**HEADS_SPACE["search"], "startup": 3},
}
TRIALS, SEEDS = 6, 1
TABLE = {
    "title": "Heads",
    "experiment": "tiny",
    "source": "Made for tests",
    "job": "job.yaml",
    "metrics": {"Acc": "test/accuracy", "kNN": "knn/test/accuracy"},
    "tolerance": 100,
    "seeds": 2,
    "rows": {"CE": {"set": {"objective.heads": {}}}, "MLCL": {}},
    "columns": {"All": {}, "Fast": {"set": {"train.lr": 0.02}}},
}
"""A table of four cells with two seeds each."""


@dataclass(frozen=True)
class Moment:
    """The moment of a kill: a number of ledger lines, and a number of seconds after the last of them."""

    target: Target
    lines: int
    seconds: float
    restart_at_once: bool
    """Whether MLflow's server is started again while the command runs, or only after its end."""


def moment(kind: str, point: int, events: Sequence[dict[str, Any]]) -> Moment:
    """Returns the moment of a point, drawn from the events of an unbroken sweep or table.

    The kind of event is drawn first: most events are intermediate values, and rare kinds deserve as many
    kills.
    """
    target = POINTS[kind][point]
    chance = random.Random(f"point {point}")
    lines: dict[str, list[int]] = {}
    for count, event in enumerate(events[:-1], start=1):
        if target != "worker" or event["event"] in ("begin", "value"):
            lines.setdefault(event["event"], []).append(count)
    index = chance.choice(lines[chance.choice(sorted(lines))])
    gap = events[index]["at"] - events[index - 1]["at"]
    return Moment(target, index, chance.random() * gap, restart_at_once=point % 2 == 0)


class Server:
    """An MLflow server that can be killed, and started again on the same store and port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._port = folder, _free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
        command += ["--port", str(self._port), "--backend-store-uri", f"sqlite:///{self.folder}/store.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            start_new_session=True,
        )
        until(self._answers)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """Kills all processes of the server."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def running(self) -> bool:
        return self._process is not None


class KilledCommand:
    """The command `mlcl sweep` or `mlcl reproduce`, with an MLflow server of its own; `with` ends both."""

    def __init__(self, kind: str, folder: Path, data: Path) -> None:
        self.folder, self.home = folder, folder / "outputs"
        self.server = Server(folder / "server")
        self._driver: subprocess.Popen[bytes] | None = None
        self._seen: set[psutil.Process] = set()
        # The path is relative, so that the job, and with it every hash, is the same in any folder.
        (folder / "data").symlink_to(data)
        job = job_tree(Path("data"), epochs=12, lr=0.001, checkpoint_every=5)
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
        (folder / "table.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
        self._words = ["sweep", "job.yaml", "space.yaml", "--trials", str(TRIALS), "--seeds", str(SEEDS)]
        self._words += ["--searches", "1", "--no-baselines"]  # enough trials for some to be pruned
        if kind == "table":
            self._words = ["reproduce", "table.yaml"]

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        for process in self._seen:
            with suppress(psutil.Error):
                process.kill()
        if self._driver is not None:
            self._driver.wait()
        self.server.kill()

    def start(self) -> None:
        """Starts the command, with the same words every time."""
        command = [sys.executable, "-m", "mlcl", *self._words, "--json"]
        command += ["--cpus", str(max(2, os.cpu_count() or 1))]  # one training takes all of them
        environment = {
            "MLFLOW_TRACKING_URI": self.server.uri,
            "RAY_gcs_rpc_server_reconnect_timeout_s": "10",  # not a minute, for a lost head
        }
        # Output goes to files, since a process that outlives a killed command would keep pipes open.
        with (self.folder / "out.json").open("wb") as out, (self.folder / "err.txt").open("ab") as err:
            self._driver = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=out,
                stderr=err,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def complete(self) -> int:
        """Waits for the command, repeats it until nothing is left to do, and returns the repetitions.

        Fails if a repeated command fails.
        """
        for repetitions in range(3):
            if repetitions > 0:
                self.start()
            status = self._status()
            assert status == 0 or repetitions == 0, (self.folder / "err.txt").read_text()[-3000:]
            if not self.server.running:
                self.server.start()
            elif status == 0 and self.report["undelivered"] == 0:
                return repetitions
        raise AssertionError(f"{self.report['undelivered']} logs are not delivered")

    def _status(self) -> int:
        until(self._ended)
        assert self._driver is not None
        return int(self._driver.returncode)

    def kill(self, moment: Moment) -> None:
        """Waits for the moment and kills the target; fails if the command ends before."""
        until(lambda: len(self.events) >= moment.lines or self._ended(), every=0.001)
        time.sleep(moment.seconds)
        process = None
        if moment.target != "mlflow":
            process = until(lambda: self._find(moment.target) or self._ended(), every=0.001)
        assert not self._ended(), (self.folder / "err.txt").read_text()[-3000:]
        if isinstance(process, psutil.Process):
            self._look()
            process.kill()
            return
        self.server.kill()
        if moment.restart_at_once:
            self.server.start()

    @property
    def report(self) -> dict[str, Any]:
        """The report that the last command printed."""
        report: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return report

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in the complete lines of the ledger."""
        return ledgers.events(self.home)

    def _ended(self) -> bool:
        return self._driver is not None and self._driver.poll() is not None

    def _look(self) -> None:
        """Remembers the command's processes, since those of a killed command have another parent."""
        if self._driver is None or self._ended():
            return
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self._driver.pid)
            self._seen |= {driver, *driver.children(recursive=True)}

    def _find(self, target: Target) -> psutil.Process | None:
        """Returns the command's process of a kind, or None."""
        assert self._driver is not None
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self._driver.pid)
            if target == "driver":
                return driver
            prefix = {"worker": "ray::ImplicitFunc", "ray": "gcs_server"}[target]
            return next((child for child in driver.children(recursive=True) if _is(child, prefix)), None)
        return None


def _is(process: psutil.Process, begins: str) -> bool:
    with suppress(psutil.Error):
        return bool(process.name().startswith(begins))
    return False


def _free_port() -> int:
    """Returns a free port that the system does not assign by itself, so that it stays free for a restart."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
