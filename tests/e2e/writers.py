"""Processes that only write logs, as trainings do, to test the load of many of them on one MLflow server."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE

from mlcl.tracking import RunLog, State, Tracker, tracking_uri
from mlcl.tracking.delivery import Delivery

STEPS = range(1, 41)
METRICS = ("train/loss", "train/lr", "val/accuracy", "epoch")


def id_of(writer: int) -> str:
    return f"writer-{writer}"


def value(writer: int, step: int, metric: str) -> float:
    """Returns a value that identifies the writer, step and metric of a point."""
    return writer + step / 1000 + METRICS.index(metric) / 100_000


def begin(home: Path, writer: int, experiment: str) -> RunLog:
    id = id_of(writer)
    return RunLog.start(
        home, id, uri=tracking_uri(home), experiment=experiment, name=id, owner=id, params={}, tags={}
    )


def trial(home: Path, writer: int, _experiment: str, gate: Any) -> None:
    """Writes the log of a trial; the log exists already, and another process delivers it."""
    gate.wait()
    _log(RunLog.attach(home, id_of(writer)), writer)


def command(home: Path, writer: int, experiment: str, gate: Any) -> int:
    """Writes a log and delivers it in the background; returns how many logs could not be delivered."""
    log, tracker = begin(home, writer, experiment), Tracker(home)
    gate.wait()
    with Delivery(tracker) as delivery:
        delivery.add(log.id)
        _log(log, writer)
        return delivery.drain(PATIENCE)


def _log(log: RunLog, writer: int) -> None:
    for step in STEPS:
        log.log_metrics({metric: value(writer, step, metric) for metric in METRICS}, step)
    log.set_state(State.COMPLETE)


def _surround(variables: dict[str, str]) -> None:
    os.environ.update(variables)


@contextmanager
def at_once(
    work: Callable[..., Any], writers: int, home: Path, experiment: str
) -> Iterator[list[Future[Any]]]:
    """Runs the work in processes that begin together after their imports, and yields the futures."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mlcl.tracking.delivery"])
    # The fork server may come from an earlier test, so each process is given the present environment.
    options = {"mp_context": context, "initializer": _surround, "initargs": (dict(os.environ),)}
    with context.Manager() as manager, ProcessPoolExecutor(writers, **options) as pool:
        gate = manager.Barrier(writers)
        yield [pool.submit(work, home, writer, experiment, gate) for writer in range(writers)]
