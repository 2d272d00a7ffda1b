"""Processes that only log, as trainings do: for tests of what many of them do to one MLflow server."""

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
    """Tells where a point comes from."""
    return writer + step / 1000 + METRICS.index(metric) / 100_000


def begin(home: Path, writer: int, experiment: str) -> RunLog:
    id = id_of(writer)
    return RunLog.start(
        home, id, uri=tracking_uri(home), experiment=experiment, name=id, owner=id, params={}, tags={}
    )


def trial(home: Path, writer: int, _experiment: str, gate: Any) -> None:
    """A process of a sweep: the log has been begun, and another process delivers it."""
    gate.wait()
    _log(RunLog.attach(home, id_of(writer)), writer)


def command(home: Path, writer: int, experiment: str, gate: Any) -> int:
    """A command of its own: it delivers its log in the background. How many logs it could not deliver."""
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
    """The work of so many processes that begin together, imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mlcl.tracking.delivery"])
    # The server that forks them may be of an earlier test.
    here = {"mp_context": context, "initializer": _surround, "initargs": (dict(os.environ),)}
    with context.Manager() as manager, ProcessPoolExecutor(writers, **here) as pool:
        gate = manager.Barrier(writers)
        yield [pool.submit(work, home, writer, experiment, gate) for writer in range(writers)]
