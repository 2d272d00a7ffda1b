"""Measures trainings that log at once to one MLflow server: lost points, and the waiting time of a step.

    python benchmarks/tracking.py [--writers 32] [--steps 100] [--metrics 20] [--pause 0.2] [--store URL]

The server is the one of `mlcl up`, with users and passwords. A writer is a process that only logs: each step
is a pause, then one call with all of the step's metrics. In `a sweep`, one command delivers the logs of all
writers; in `commands`, each writer delivers its own; the peers call `mlflow.log_metrics` in the step. `silent
server` repeats the sweep with a server that accepts connections and does not answer until all writers have
ended.

`points/s` are all points over the seconds from the first call until the store has the last; `behind` is the
part of these seconds after the last call returned. `lost` and `twice` compare every point that was logged
with the rows of the database. A URL with a password belongs in the variable MLCL_STORE. The exit code is 1 if
one of mlcl's own contenders loses a point or stores it twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tracking_server import TrackingServer, tracking_server
from tracking_writers import PATIENCE, Load, Written, command, fluent, fluent_async, id_of, new_log, trial

from mlcl.tracking import Tracker
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.delivery import Delivery

HEAD = (
    "| contender | points/s | behind s | ms of a call: p50 | p99 | max | calls failed | lost | twice |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
Writer = Callable[[Load, int, Path, str, Any], Written]


@dataclass(frozen=True)
class Contender:
    """A kind of writer. `ours`: an inexact store fails the benchmark. `silent`: the server never answers."""

    name: str
    writer: Writer
    ours: bool = True
    silent: bool = False


CONTENDERS = (
    Contender("mlcl, a sweep", trial),
    Contender("mlcl, a sweep, silent server", trial, silent=True),
    Contender("mlcl, commands", command),
    Contender("mlflow.log_metrics", fluent, ours=False),
    Contender("mlflow.log_metrics(synchronous=False)", fluent_async, ours=False),
)


def main() -> int:
    args = arguments()
    load = Load(args.writers, args.steps, args.metrics, args.pause)
    points = load.writers * load.steps * load.metrics
    print(f"{os.cpu_count()} CPUs, {load.writers} writers, {points:,} points, a call every {load.pause} s\n")
    is_wrong = False
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        home = Path(folder).resolve()
        with tracking_server(home, args.store) as server:
            print(HEAD)
            for number, contender in enumerate(CONTENDERS):
                results, delivery_time = run(contender, load, server, home / str(number))
                n_lost, n_duplicates = compare(load, server, results)
                is_wrong = is_wrong or (contender.ours and bool(n_lost or n_duplicates))
                print(line(contender, load, results, delivery_time, n_lost, n_duplicates), flush=True)
    return int(is_wrong)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--writers", type=int, default=32, help="processes that log at once")
    parser.add_argument("--steps", type=int, default=100, help="calls of each")
    parser.add_argument("--metrics", type=int, default=20, help="points of a call")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between calls")
    parser.add_argument(
        "--store", default=os.environ.get("MLCL_STORE", "sqlite"), help="MLflow's database; default: sqlite"
    )
    args = parser.parse_args()
    if min(args.writers, args.steps, args.metrics) < 1 or args.pause < 0:
        parser.error("--writers, --steps and --metrics take 1 or more, --pause no less than 0")
    return args


def run(contender: Contender, load: Load, server: TrackingServer, home: Path) -> tuple[list[Written], float]:
    """Returns the answer of each writer, and the time at which the store had everything."""
    tracker, writers = Tracker(home), range(load.writers)
    tracker.experiment(home.name)
    # MLflow is imported once: importing it in each writer would dominate what is measured.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mlcl.tracking.delivery"])
    sweep = contender.writer is trial
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(load.writers, mp_context=context) as pool,
        Delivery(tracker) if sweep else nullcontext() as delivery,
    ):
        if delivery:
            for writer in writers:
                delivery.add(new_log(home, writer, home.name).id)
        gate = manager.Barrier(load.writers + 1)
        futures = [pool.submit(contender.writer, load, writer, home, home.name, gate) for writer in writers]
        with server.silent() if contender.silent else nullcontext():
            gate.wait()
            results = [future.result() for future in futures]
        if delivery:
            delivery.drain(PATIENCE)
            for writer, result in enumerate(results):
                result.run, result.delivered = Cursor.of(home, id_of(writer)).run_id, time.monotonic()
    return results, max(result.delivered for result in results)


def compare(load: Load, server: TrackingServer, results: Sequence[Written]) -> tuple[int, int]:
    """Returns the number of points that the store lacks, and of those stored too often or wrongly."""
    n_lost = n_duplicates = 0
    for writer, result in enumerate(results):
        logged_points = Counter(
            (name, step, value)
            for step in range(load.steps)
            for name, value in load.values(writer, step).items()
        )
        stored_points = server.points(result.run or "")
        n_lost += (logged_points - stored_points).total()
        n_duplicates += (stored_points - logged_points).total()
    return n_lost, n_duplicates


def line(
    contender: Contender,
    load: Load,
    results: Sequence[Written],
    delivery_time: float,
    n_lost: int,
    n_duplicates: int,
) -> str:
    """Returns the contender's line of the table."""
    start, end = min(result.began for result in results), max(result.ended for result in results)
    points = load.writers * load.steps * load.metrics - n_lost
    waits = 1e3 * np.concatenate([result.waits for result in results])
    cells = [
        contender.name,
        f"{points / (delivery_time - start):,.0f}",
        f"{delivery_time - end:.1f}",
        *(f"{wait:.2f}" for wait in np.percentile(waits, [50, 99, 100])),
        str(sum(result.failed for result in results)),
        f"{n_lost:,}",
        f"{n_duplicates:,}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
