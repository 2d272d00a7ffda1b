"""What a sweep adds to its trainings, beside Ray Tune with what comes with it.

    python benchmarks/sweep.py [--cases alone packed nested] [--trials 8] [--epochs 4] [--rounds 2] [--keep DIR]

Overhead is the time for which a training holds its slot, less the seconds in which it trains and evaluates:
starting, drawing, reading data, building the model, reporting, logging, closing. `alone` runs one training at
a time, `packed` two, `nested` one of two workers. The peers run the same trainings: the job and the settings
that ours drew, one thread a process. ASHA is on everywhere with its first rung at the last epoch, so that all
are trained to their end.

Each sweep has a process and an empty MLflow store of its own, and is timed from before Ray, MLflow and Optuna
are imported. `first` are the first trainings of the slots, with all that starts; `each further` is the median
over the others of all rounds, ± half the distance of its quartiles. The exit code is 1 where a sweep does not
end well, or where a peer's training scores otherwise than ours.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sweep_clock import CASES, Case, Row, Sweep, table
from sweep_ours import run_ours
from sweep_peer import run_peer

from mlcl.config import JobConfig, Space, load_job, load_space

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[1]
JOB, SPACE = ROOT / "jobs" / "icd10cm_mlcl.yaml", ROOT / "tune_spaces" / "mlcl_joint.yaml"
MOST_NESTED = 4
"""Trainings of a nested sweep: one takes the peer half a minute."""
OURS, PEERS = "mlcl", {"Tune, fresh actors": False, "Tune, reused actors": True}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""For all contenders: none waits for the network."""
ELSEWHERE = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
"""Would lead out of this machine, or out of the folder."""


def main() -> int:
    a = arguments()
    os.environ.update(QUIET)
    for name in ELSEWHERE:
        os.environ.pop(name, None)
    rows: dict[tuple[str, str], Row] = {}
    problems: list[str] = []
    with folder(a.keep) as root:
        in_a_process(prepare, job_of(CASES["alone"], a.epochs), root)
        for turn in range(a.rounds):
            for case in (CASES[name] for name in a.cases):
                home = root / f"{case.name}-{turn}"
                problems += one_round(case, a.trials, a.epochs, root, home, rows)
    print(f"{os.cpu_count()} CPUs, {a.trials} trainings of {a.epochs} epochs a sweep, {a.rounds} rounds\n")
    print("\n".join(table(sorted(rows.values(), key=lambda row: a.cases.index(row.case.name)), OURS)))
    print("\n".join(problems))
    return 1 if problems else 0
