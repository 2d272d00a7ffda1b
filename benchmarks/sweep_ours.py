"""A sweep of ours, timed by its own ledger.

mlcl.service is imported inside of functions: a sweep is timed from before it imports Ray, MLflow and Optuna,
and it sets environment variables that the peers are to do without.
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
    """The peers' training: the job, its metric at a validation, the final one, the settings drawn."""

    job: dict[str, Any]
    metric: str
    score: str
    points: tuple[dict[str, float], ...]


def run_ours(case: Case, job: JobConfig, space: Space, trials: int, home: Path) -> tuple[Sweep, Drawn]:
    """One sweep. Raises RuntimeError where it or one of its trainings is not complete."""
    began = time.time()
    from mlcl.service.engine.packing import Resources
    from mlcl.service.search.sweep import run_sweep
    from mlcl.service.search.sweep_plan import SweepPlan

    plan = SweepPlan(job, space, str(space), case.name, trials, resources=Resources(cpus=case.cpus))
    report = run_sweep(plan, home=home, watch=lambda _event: None)
    ended = time.time()
    states = [report.state, *(each.state for each in report.trials)]
    if set(states) != {"COMPLETE"} or report.undelivered:
        raise RuntimeError(f"states {states}, {report.undelivered} logs undelivered: {report.reason}")
    drawn = Drawn(
        dump_job(plan.search_job()),
        space.metric,
        plan.score,
        tuple(dict(each.settings) for each in report.trials),
    )
    return Sweep(began, ended, case.at_once, _trainings(report, home)), drawn


def _trainings(report: SweepResult, home: Path) -> tuple[Training, ...]:
    """When, by the ledger; how long they trained, by MLflow."""
    from mlflow import MlflowClient

    from mlcl.store import Database, RunFolder

    record = RunFolder(report.folder).record
    assert record is not None
    events = [event for event, _ in Database(home).events(record.number)]
    began = {event["key"]: event["at"] for event in events if event["event"] == "begin"}
    closed = {event["key"]: event["at"] for event in events if event["event"] == "close"}
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    trainings = []
    for trial in report.trials:
        metrics = client.get_run(trial.run_id).data.metrics
        trainings.append(
            Training(began[trial.key], closed[trial.key], own_seconds(metrics), metrics[report.score])
        )
    return tuple(trainings)


def own_seconds(metrics: Mapping[str, Any]) -> float:
    """For which a training trained and evaluated, by itself."""
    return float(metrics["time/train_seconds"] + metrics["time/evaluation_seconds"])
