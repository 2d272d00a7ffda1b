"""A sweep of ours, timed by its own ledger.

mlcl.service is imported inside of the function: a sweep is timed from before the import of Ray, MLflow and
Optuna, and the import sets environment variables that the peers' processes must not have.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep_clock import Case, Sweep, Training

from mlcl.config import JobConfig, Space, dump_job


@dataclass(frozen=True)
class Drawn:
    """What the peers are to train: the job, what a training is scored by, and the settings drawn."""

    job: dict[str, Any]
    metric: str
    score: str
    points: tuple[dict[str, float], ...]


def run_ours(
    case: Case, job: JobConfig, space: Space, text: str, trials: int, home: Path
) -> tuple[Sweep, Drawn]:
    """One sweep. Raises RuntimeError where it or one of its trainings is not complete."""
    began = time.time()
    from mlcl.service.sweep import run_sweep
    from mlcl.service.sweep_plan import SweepPlan

    plan = SweepPlan(job, space, text, case.name, trials, cpus=case.cpus)
    report = run_sweep(plan, home=home, watch=lambda _event: None)
    ended = time.time()
    unfinished = [f"{each.label} {each.state} {each.reason}" for each in report.trials if each.state != "COMPLETE"]
    if report.state != "COMPLETE" or unfinished or report.undelivered:
        raise RuntimeError(f"{report.state} {report.reason}, {unfinished}, {report.undelivered} logs undelivered")
    trainings = tuple(_trainings(report.folder))
    points = tuple(dict(each.settings) for each in report.trials)
    drawn = Drawn(dump_job(plan.search_job()), space.metric, plan.score, points)
    return Sweep(began, ended, case.at_once, trainings), drawn


def _trainings(folder: Path) -> list[Training]:
    from mlcl.service.ledger import LEDGER

    events = [json.loads(line) for line in (folder / LEDGER).read_text().splitlines()]
    began = {event["key"]: event["at"] for event in events if event["event"] == "begin"}
    closed = [event for event in events if event["event"] == "close"]
    closed.sort(key=lambda event: event["key"])
    return [
        Training(
            began[event["key"]],
            event["at"],
            event["metrics"]["time/train_seconds"] + event["metrics"]["time/evaluation_seconds"],
            event["score"],
        )
        for event in closed
    ]
