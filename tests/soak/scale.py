"""Runs a sweep of very many simulated trainings through the real engine and prints how its costs grow.

    python tests/soak/scale.py [--trials 10000] [--nodes 8 [--seconds 0.1]]

Search, ledger, records, logs and report are the product's own. The result of a training is computed by a
formula, and only the sweep's log is sent to MLflow. With `--nodes`, Ray Tune runs the trainings, each of
`--seconds` seconds, in processes of a cluster of fake nodes on this machine; otherwise this process computes
them. The script prints a line at several numbers of trials. A line has, per trial since the line before, the
wall milliseconds, the driver's processor milliseconds, and the median milliseconds to hand a training out
(which draws its settings) and to close it; then the driver's memory and the bytes on disk. No file is
synchronised to the disk.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
import pytest
import ray
from builders import text_dataset, tiny_job
from formula import Formula, play
from sweeps import AtOnce, World

from mlcl.report.report import make_report
from mlcl.results.runs import Runs
from mlcl.service.engine import command, engine, trial, tune_executor
from mlcl.service.engine.trial import TrialTask
from mlcl.service.search import sweep_run
from mlcl.service.search.sweep import run_sweep
from mlcl.tracking import Tracker

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  train.lr: {log_float: [0.0005, 0.05]}
search: {sampler: SAMPLER, scheduler: none}
"""
START = 60.0
"""The seconds of the first training of a process, long enough for all processes to start meanwhile."""
POINTS = (100, 300, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 50_000, 100_000)


class SweepLogOnly(AtOnce):
    """A delivery that sends only the log of the sweep; the logs of its trainings stay undelivered."""

    def add(self, id):
        if not self._logs:
            super().add(id)

    def add_undelivered(self, **_):
        return None


class Meter:
    """A wrapper of the engine's callbacks that measures them and prints a line at each number in POINTS."""

    def __init__(self, home: Path) -> None:
        self._home, self._done, self.engine = home, 0, None
        self._processor, self._wall = time.process_time(), time.monotonic()
        self._handed: list[float] = []
        self._closed: list[float] = []
        print("| trials | wall ms a trial | driver ms | hand out ms | close ms | MiB | KiB a trial on disk |")
        print("|---|---|---|---|---|---|---|", flush=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def next(self) -> TrialTask | None:
        return self._timed(self.engine.next, self._handed)

    def end(self, key: str, result: dict[str, Any]) -> None:
        self._timed(lambda: self.engine.end(key, result), self._closed)
        self._done += 1
        if self._done in POINTS:
            self._line()

    def _timed(self, work: Callable[[], Any], times: list[float]) -> Any:
        start = time.process_time()
        answer = work()
        times.append(1e3 * (time.process_time() - start))
        return answer

    def _line(self) -> None:
        count = len(self._closed)
        processor, wall = time.process_time() - self._processor, time.monotonic() - self._wall
        memory = psutil.Process().memory_info().rss / 2**20
        size = sum(file.stat().st_size for file in self._home.rglob("*") if file.is_file()) / 2**10
        medians = (statistics.median(self._handed), statistics.median(self._closed))
        cells = (1e3 * wall / count, 1e3 * processor / count, *medians)
        texts = [
            f"{self._done:,}",
            *(f"{cell:.1f}" for cell in cells),
            f"{memory:.0f}",
            f"{size / self._done:.1f}",
        ]
        print(f"| {' | '.join(texts)} |", flush=True)
        self._handed, self._closed = [], []
        self._processor, self._wall = time.process_time(), time.monotonic()


def in_this_process(meter: Meter) -> None:
    """Runs the trainings one after the other in this process, without Tune."""
    while (task := meter.next()) is not None:
        meter.begin(task.key)
        meter.end(task.key, play(task, meter))


def simulated_trial(seconds: float) -> Callable[[dict[str, str]], None]:
    """Returns the product's function of Tune's trials, with a formula and a pause as the experiment."""

    def run_trial(config: dict[str, str]) -> None:
        first = not isinstance(trial.run_experiment, Formula)
        formula = Formula()
        formula.before = lambda _job, _epoch: time.sleep(START if first else seconds)
        trial.run_experiment = formula
        trial.JobData = SimpleNamespace(of=lambda job, *_, **__: SimpleNamespace(job=job))
        trial.run_trial(config)

    return run_trial


@contextmanager
def fake_cluster(nodes: int) -> Iterator[None]:
    """Connects to a Ray cluster of `nodes` fake nodes with two CPUs each, and a head without CPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        cluster.add_node(num_cpus=2)
    runtime_env = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(
        address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=runtime_env
    )
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.1)
    a = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mlcl-scale-") as folder,
        fake_cluster(a.nodes) if a.nodes else nullcontext(),
        pytest.MonkeyPatch.context() as patch,
    ):
        list_nodes = ray.nodes
        text_dataset(Path(folder) / "data")
        store = Tracker(Path(folder) / "home", None)
        world = World(store.home, patch, store.uri)
        meter, run_tune = Meter(world.home), tune_executor.run_trainings

        def run_trainings(callbacks: Any, **options: Any) -> None:
            meter.engine = callbacks
            run_tune(meter, **options) if a.nodes else in_this_process(meter)

        patch.setattr(engine, "run_trainings", run_trainings)
        if a.nodes:
            patch.setattr(ray, "nodes", list_nodes)
            patch.setattr(tune_executor, "run_trial", simulated_trial(a.seconds))
        patch.setattr(command, "Delivery", SweepLogOnly)
        patch.setattr(sweep_run, "WRITE_EVERY", 10.0)
        job = tiny_job(Path(folder) / "data", epochs=1)
        plan = world.plan(job, SPACE.replace("SAMPLER", a.sampler), trials=a.trials)
        start = time.process_time()
        result = run_sweep(plan, home=world.home, watch=lambda _event: None)
        print(f"{result.state}: {time.process_time() - start:.0f} s of the processor in all", flush=True)
        start = time.process_time()
        page = make_report(Runs(store), result.id, world.home, log=False).page
        seconds, size = time.process_time() - start, page.stat().st_size / 2**20
        print(f"report: {seconds:.0f} s of the processor, {size:.1f} MiB")


if __name__ == "__main__":
    main()
