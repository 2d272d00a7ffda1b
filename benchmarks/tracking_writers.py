"""Simulated trainings that only log: a step is a pause, then one call with all of its metrics."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from mlcl.tracking import RunLog, Tracker
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.delivery import Delivery

Log = Callable[[Mapping[str, float], int], None]
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
"""MLflow's own retries, which mlcl's tracker turns off and the peers keep at their default."""
PATIENCE = 600.0
"""The seconds without an answer after which a delivery is given up."""


@dataclass(frozen=True)
class Load:
    """The number of writers, of steps and of metrics per step, and the seconds between two calls."""

    writers: int
    steps: int
    metrics: int
    pause: float

    def values(self, writer: int, step: int) -> dict[str, float]:
        """Returns the metrics of a step, numbers that identify their writer."""
        return {f"train/m{i}": writer + step / 1e3 + i / 1e6 for i in range(self.metrics)}


@dataclass
class Written:
    """The result of a writer: its run, the seconds of each call, when the first began and the last ended.

    `delivered` is the time at which the writer knew that MLflow has everything; `failed` counts calls that
    raised.
    """

    run: str | None = None
    waits: list[float] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    delivered: float = 0.0
    failed: int = 0


def id_of(writer: int) -> str:
    return f"writer-{writer:03}"


def new_log(home: Path, writer: int, experiment: str) -> RunLog:
    id, uri = id_of(writer), os.environ["MLFLOW_TRACKING_URI"]
    return RunLog.start(home, id, uri=uri, experiment=experiment, name=id, owner=id, params={}, tags={})


def trial(load: Load, writer: int, home: Path, _experiment: str, gate: Any) -> Written:
    """Logs as a process of a sweep, whose main process has begun the log and delivers it."""
    log = RunLog.attach(home, id_of(writer))
    return _write(load, writer, log.metrics, gate)


def command(load: Load, writer: int, home: Path, experiment: str, gate: Any) -> Written:
    """Logs as `mlcl run` does, which delivers its own log in the background."""
    log = new_log(home, writer, experiment)
    with Delivery(Tracker(home)) as delivery:
        delivery.add(log.id)
        result = _write(load, writer, log.metrics, gate)
        delivery.drain(PATIENCE)
    result.delivered, result.run = time.monotonic(), Cursor.of(home, log.id).run_id
    return result


def fluent(load: Load, writer: int, _home: Path, experiment: str, gate: Any) -> Written:
    """Calls `mlflow.log_metrics` in the step."""
    return _peer(load, writer, experiment, gate, lambda values, step: mlflow.log_metrics(values, step))


def fluent_async(load: Load, writer: int, _home: Path, experiment: str, gate: Any) -> Written:
    """Calls `mlflow.log_metrics(..., synchronous=False)` in the step."""

    def log(values: Mapping[str, float], step: int) -> None:
        mlflow.log_metrics(values, step, synchronous=False)

    return _peer(load, writer, experiment, gate, log)


def _peer(load: Load, writer: int, experiment: str, gate: Any, log: Log) -> Written:
    os.environ.pop(RETRIES, None)
    mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=id_of(writer)) as run:
        result = _write(load, writer, log, gate)
        mlflow.flush_async_logging()
        result.delivered, result.run = time.monotonic(), run.info.run_id
    return result


def _write(load: Load, writer: int, log: Log, gate: Any) -> Written:
    result = Written()
    gate.wait()
    # Different start times keep the writers from stepping together, as trainings do not either.
    time.sleep(random.Random(writer).uniform(0, load.pause))
    result.began = time.monotonic()
    for step in range(load.steps):
        time.sleep(load.pause)
        values, start = load.values(writer, step), time.perf_counter()
        try:
            log(values, step)
        except MlflowException:
            result.failed += 1
        result.waits.append(time.perf_counter() - start)
    result.ended = result.delivered = time.monotonic()
    return result
