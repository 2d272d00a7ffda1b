"""A sweep of very many simulated trainings through the real engine: what grows with their number.

    python tests/soak/scale.py [--trials 10000]

Search, ledger, records, logs and report are the product's own; trainings are a formula, without Ray, and
only the sweep's log is sent to MLflow. A line at each of several numbers of trials has processor milliseconds
per trial since the line before, and of that the median to hand a training out (which draws its settings) and
to close it; memory; and bytes on disk. Nothing is synchronised to the disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
import pytest
from builders import text_dataset, tiny_job
from formula import play
from sweeps import AtOnce, World

from mlcl.report.report import make_report
from mlcl.results.runs import Runs
from mlcl.service.engine import command, engine
from mlcl.service.search import sweep_run
from mlcl.service.search.sweep import run_sweep
from mlcl.tracking import Tracker

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  train.lr: {log_float: [0.0005, 0.05]}
search: {sampler: SAMPLER, scheduler: none}
"""
POINTS = (100, 300, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 50_000, 100_000)


class SweepLogOnly(AtOnce):
    """Delivers the log of the sweep; the logs of its trainings stay undelivered."""

    def add(self, id):
        if not self._logs:
            super().add(id)

    def add_undelivered(self, **_):
        return None


class Meter:
    """Runs trainings in this process in place of Tune, and prints a line at each of POINTS."""

    def __init__(self, home: Path) -> None:
        self._home, self._began, self._done = home, time.process_time(), 0
        self._handed: list[float] = []
        self._closed: list[float] = []
        print("| trials | ms a trial | hand out ms | close ms | MiB | KiB a trial on disk |")
        print("|---|---|---|---|---|---|", flush=True)

    def __call__(self, callbacks: Any, **_: object) -> None:
        while (task := self._timed(callbacks.next, self._handed)) is not None:
            callbacks.begin(task.key)
            result = play(task, callbacks)
            self._timed(lambda key=task.key, last=result: callbacks.end(key, last), self._closed)
            self._done += 1
            if self._done in POINTS:
                self._line()

    def _timed(self, work: Callable[[], Any], times: list[float]) -> Any:
        began = time.process_time()
        answer = work()
        times.append(1e3 * (time.process_time() - began))
        return answer

    def _line(self) -> None:
        took, count = time.process_time() - self._began, len(self._closed)
        memory = psutil.Process().memory_info().rss / 2**20
        size = sum(file.stat().st_size for file in self._home.rglob("*") if file.is_file()) / 2**10
        cells = (1e3 * took / count, statistics.median(self._handed), statistics.median(self._closed))
        texts = [
            f"{self._done:,}",
            *(f"{cell:.1f}" for cell in cells),
            f"{memory:.0f}",
            f"{size / self._done:.1f}",
        ]
        print(f"| {' | '.join(texts)} |", flush=True)
        self._handed, self._closed, self._began = [], [], time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--sampler", default="tpe")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlcl-scale-") as folder, pytest.MonkeyPatch.context() as patch:
        text_dataset(Path(folder) / "data")
        store = Tracker(Path(folder) / "home", None)
        world = World(store.home, patch, store.uri)
        patch.setattr(engine, "run_trainings", Meter(world.home))
        patch.setattr(command, "Delivery", SweepLogOnly)
        patch.setattr(sweep_run, "WRITE_EVERY", 10.0)
        job = tiny_job(Path(folder) / "data", epochs=1)
        plan = world.plan(job, SPACE.replace("SAMPLER", a.sampler), trials=a.trials)
        began = time.process_time()
        result = run_sweep(plan, home=world.home, watch=lambda _event: None)
        print(f"{result.state}: {time.process_time() - began:.0f} s in all", flush=True)
        began = time.process_time()
        page = make_report(Runs(store), result.id, world.home, log=False).page
        print(f"report: {time.process_time() - began:.0f} s, {page.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
