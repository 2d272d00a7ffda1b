"""Measures a sweep's overhead on its trainings, beside Ray Tune with its own parts and a plain process pool.

    python benchmarks/sweep.py [--cases alone packed nested] [--peers fresh reused pool] [--trials 8]
        [--epochs 4] [--rounds 2] [--keep D]

Overhead is the time for which a training occupies its slot, less the seconds in which it trains and
evaluates: starting, drawing settings, reading data, building the model, reporting, logging and closing.
`alone` runs one training at a time, `packed` two, and `nested` one training of two workers. The peers run
equal trainings: the same job and the settings that our sweep drew, with one thread per process. ASHA is on
for all contenders, with no rung before the last epoch, so that all trainings run to their end.

Each sweep has its own process and an empty MLflow store, and is timed from before Ray, MLflow and Optuna are
imported. `first` is the overhead of the first training of each slot, including all start-up; `each further`
is the median over the other trainings of all rounds, ± half the distance between its quartiles. The exit code
is 1 if a sweep does not complete, or if a training of a peer has another score than ours.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sweep_clock import HEAD, Case, Row, Sweep, differences
from sweep_ours import Drawn, run_ours
from sweep_peer import run_peer
from sweep_pool import run_pool

from mlcl.config import JobConfig, load_job, load_space

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[1]
JOB, SPACE = ROOT / "jobs" / "icd10cm_mlcl.yaml", ROOT / "tune_spaces" / "mlcl_joint.yaml"
CASES = {
    "alone": Case("alone", at_once=1, workers=1, target=0.5),
    "packed": Case("packed", at_once=2, workers=1, target=0.5),
    "nested": Case("nested", at_once=1, workers=2, target=12.0),
}
MOST_NESTED = 4
"""The most trainings of a nested sweep, in which each takes the peers long."""
OURS = "mlcl"
PEERS: dict[str, tuple[str, Callable[[Case, Drawn, Path], Sweep]]] = {
    "fresh": ("Tune, fresh actors", partial(run_peer, reuse=False)),
    "reused": ("Tune, reused actors", partial(run_peer, reuse=True)),
    "pool": ("Optuna, process pool", run_pool),
}
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables of all contenders, which prevent messages and access to the network."""
ELSEWHERE = ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")
"""Environment variables that would point to another cluster or store, and are removed."""


def main() -> int:
    args = arguments()
    os.environ.update(QUIET)
    for name in ELSEWHERE:
        os.environ.pop(name, None)
    print(
        f"{os.cpu_count()} CPUs, {args.trials} trainings of {args.epochs} epochs, "
        f"{args.rounds} rounds\n\n{HEAD}"
    )
    rows = []
    with nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        root = Path(folder).resolve()
        in_a_process(prepare, job_of(CASES["alone"], args.epochs), root)
        for name in args.cases:
            rows.append(measured(CASES[name], args, root))
            print("\n".join(row.line(rows[-1][0]) for row in rows[-1]), flush=True)
    messages = [line for case_rows in rows for line in differences(case_rows)]
    print("\n".join(["\nScores that differ", *messages] if messages else ["\nAll scores agree"]))
    return 1 if messages else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument(
        "--trials", type=int, default=8, help=f"trainings a sweep; nested at most {MOST_NESTED}"
    )
    parser.add_argument("--epochs", type=int, default=4, help="of a training, each with a validation")
    parser.add_argument("--rounds", type=int, default=2, help="sweeps of each contender, in turns")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder where everything stays")
    args = parser.parse_args()
    if args.trials < 3 or args.epochs < 1 or args.rounds < 1:
        parser.error("--trials takes 3 or more, --epochs and --rounds 1 or more")
    if args.keep:
        try:
            args.keep.mkdir(parents=True)
        except FileExistsError:
            parser.error(f"--keep {args.keep}: exists")
    return args


def measured(case: Case, args: argparse.Namespace, root: Path) -> list[Row]:
    """Measures the case and returns its rows, ours first."""
    trials = min(args.trials, MOST_NESTED) if case.workers > 1 else args.trials
    peers = dict(PEERS[name] for name in args.peers if case.workers == 1 or name != "pool")
    rows = [Row(case, name) for name in (OURS, *peers)]
    for turn in range(args.rounds):
        sweeps = one_round(case, peers, trials, args.epochs, root, f"{case.name}-{turn}")
        for row in rows:
            row.sweeps.append(sweeps[row.contender])
    return rows


def one_round(
    case: Case,
    peers: dict[str, Callable[[Case, Drawn, Path], Sweep]],
    trials: int,
    epochs: int,
    root: Path,
    name: str,
) -> dict[str, Sweep]:
    """Runs one sweep of each contender."""
    job = job_of(case, epochs)
    space = load_space(SPACE, job)
    space = replace(space, search=space.search.model_copy(update={"grace": epochs}))
    sweeps = {}
    sweeps[OURS], drawn = in_a_process(run_ours, case, job, space, trials, home_of(root, f"{name}-ours"))
    for number, (peer, run) in enumerate(peers.items()):
        sweeps[peer] = in_a_process(run, case, drawn, home_of(root, f"{name}-peer-{number}"))
    return sweeps


def job_of(case: Case, epochs: int) -> JobConfig:
    settings = {
        "train.epochs": epochs,
        "train.workers": case.workers,
        "train.threads": 1,
        "train.device": "cpu",
    }
    return load_job(JOB, settings | {"evaluation.every": 1})


def home_of(root: Path, name: str) -> Path:
    """Returns a new home folder, empty except for links to the shared data, which are prepared once."""
    home = root / name
    home.mkdir()
    for folder_name in ("data", "cache"):
        (home / folder_name).symlink_to(root / folder_name)
    return home


def prepare(job: JobConfig, home: Path) -> None:
    """Prepares the data set and its token ids."""
    from mlcl.training.job_data import JobData

    job_data = JobData.of(job, home)
    for split in (job_data.train, job_data.dataset.split("validation")):
        job_data.encode(split)


def in_a_process(work: Callable[..., Result], *arguments: Any) -> Result:
    """Runs `work` in a new process that has not imported mlcl; returns its result or raises its error."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


if __name__ == "__main__":
    sys.exit(main())
