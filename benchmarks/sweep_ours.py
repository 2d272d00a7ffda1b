"""Runs a sweep of mlcl, timed by the records of its own database.

mlcl.service is imported inside functions, because a sweep is timed from before it imports Ray, MLflow and
Optuna, and because the import sets environment variables that the peers must not have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep_clock import Case, Sweep, Training

from mlcl.config import JobConfig, Space, dump_job

if TYPE_CHECKING:
    from mlcl.results.sweep_result import SweepResult


@dataclass(frozen=True)
class Drawn:
    """The training that the peers run: job, metric of a validation, final metric, and settings drawn."""

    job: dict[str, Any]
    metric: str
    score: str
    points: tuple[dict[str, float], ...]


def run_ours(case: Case, job: JobConfig, space: Space, trials: int, home: Path) -> tuple[Sweep, Drawn]:
    """Runs one sweep. Raises RuntimeError if the sweep or one of its trainings is not complete."""
    start = time.time()
    from mlcl.service.engine.packing import Resources
    from mlcl.service.search.sweep import run_sweep
    from mlcl.service.search.sweep_plan import SweepPlan

    plan = SweepPlan(job, space, str(space), case.name, trials, resources=Resources(cpus=case.cpus))
    report = run_sweep(plan, home=home, watch=lambda _event: None)
    end = time.time()
    states = [report.state, *(trial.state for trial in report.trials)]
    if set(states) != {"COMPLETE"} or report.undelivered:
        raise RuntimeError(f"states {states}, {report.undelivered} logs undelivered: {report.reason}")
    drawn = Drawn(
        dump_job(plan.search_job()),
        space.metric,
        plan.score,
        tuple(dict(trial.settings) for trial in report.trials),
    )
    return Sweep(start, end, case.at_once, _trainings(report, home)), drawn


def _trainings(report: SweepResult, home: Path) -> tuple[Training, ...]:
    """Returns the trainings, with their times from the database and their own seconds from MLflow."""
    from mlflow import MlflowClient

    from mlcl.store import Database, RunFolder

    record = RunFolder(report.folder).record
    assert record is not None
    events = [event for event, _ in Database(home).events(record.number)]
    start_times = {event["key"]: event["at"] for event in events if event["event"] == "begin"}
    end_times = {event["key"]: event["at"] for event in events if event["event"] == "close"}
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    trainings = []
    for trial in report.trials:
        metrics = client.get_run(trial.run_id).data.metrics
        trainings.append(
            Training(
                start_times[trial.key], end_times[trial.key], own_seconds(metrics), metrics[report.score]
            )
        )
    return tuple(trainings)


def own_seconds(metrics: Mapping[str, Any]) -> float:
    """Returns the seconds in which a training itself trained and evaluated."""
    return float(metrics["time/train_seconds"] + metrics["time/evaluation_seconds"])
