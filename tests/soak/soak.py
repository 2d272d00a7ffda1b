"""Tests that sweeps which are killed at random end like one that is not; run by `make soak`.

Each round is one sweep of simulated trainings in its own home. Its command is killed (SIGKILL) after a random
time and repeated until the sweep is complete. The ledger, the study built from it, the logs and MLflow must
then equal those of a sweep that was not killed. The script prints a line per round and exits with status 1 at
the first difference.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from builders import text_dataset, tiny_job
from sweep_contents import differences
from sweeps import World

from mlcl.service.engine import command
from mlcl.store import RunFolders
from mlcl.tracking import State
from mlcl.tracking.delivery import Delivery

EPOCH_SECONDS = 0.05
"""The seconds of each epoch. A training has four epochs and takes 0.2 seconds."""
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""


def say(text: str) -> None:
    """Prints a line and flushes it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def world_of(home: Path) -> World:
    """Returns the world of a home, in which the product's own thread delivers to MLflow."""
    patch = pytest.MonkeyPatch()
    world = World(home, patch, f"sqlite:///{home.resolve()}/mlflow.db")
    patch.setattr(command, "Delivery", Delivery)
    world.formula.before = lambda _job, _epoch: time.sleep(EPOCH_SECONDS)
    return world


def sweep(home: Path, trials: int) -> None:
    """Runs one sweep command in this process and exits with its status."""
    world = world_of(home)
    job = tiny_job(home.parent / "data" / "tiny")
    report = world.run(world.plan(job, SPACE, trials=trials, seeds=2))
    sys.exit(0 if report.state is State.COMPLETE and report.undelivered == 0 else 3)


def start(home: Path, trials: int) -> subprocess.Popen[bytes]:
    """Starts the sweep command in a process of its own."""
    return subprocess.Popen([sys.executable, __file__, "--home", str(home), "--trials", str(trials)])


def killed(home: Path, trials: int, mean: float, chance: random.Random) -> int:
    """Repeats the command until the sweep is complete, and returns how often it was killed."""
    kills = 0
    while True:
        process, seconds = start(home, trials), chance.expovariate(1 / mean)
        if not (home / "sweeps").exists():
            seconds += mean  # the first process runs long enough to write something
        try:
            if process.wait(seconds) == 0:
                return kills
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1


def soak(minutes: float, trials: int, mean: float, seed: int) -> int:
    """Runs rounds until the time is over. Returns 1 at the first difference, else 0."""
    end, chance, rounds, kills = time.monotonic() + 60 * minutes, random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="mlcl-soak-") as folder:
        homes = Path(folder)
        text_dataset(homes / "data" / "tiny")
        assert start(homes / "whole", trials).wait() == 0
        expected = world_of(homes / "whole").everything()
        while rounds == 0 or time.monotonic() < end:
            rounds += 1
            home = homes / f"killed-{rounds}"  # a new path, because MLflow's client keeps stores open by path
            kill_count = killed(home, trials, mean, chance)
            kills += kill_count
            difference_lines = differences(world_of(home).everything(), expected)
            records = len(list(RunFolders(home, "sweeps").records()))
            say(f"round {rounds}: {trials} trials, {kill_count} kills, {len(difference_lines)} differences")
            if difference_lines or records != 1:
                say("\n".join(difference_lines[:20]))
                return 1
            shutil.rmtree(home)
    say(f"{rounds} sweeps of {trials} trials, {kills} kills: none differs from the unbroken one")
    return 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--trials", type=int, default=500)
    options.add_argument("--mean", type=float, default=20, help="seconds from a start to a kill, on average")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.home is not None:
        sweep(asked.home, asked.trials)
    sys.exit(soak(asked.minutes, asked.trials, asked.mean, asked.seed))
