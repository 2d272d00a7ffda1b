"""Checks the plan of a sweep before anything is started."""

from __future__ import annotations

from pathlib import Path

from mlcl.config import corners, default_mode, dump_job, load_job
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.service.engine.notify import resolve_target
from mlcl.service.engine.precision import refuse_auto
from mlcl.service.search.arms import CONTROL, search_plans
from mlcl.service.search.starts import asked_start
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.training.checks import check_job
from mlcl.training.job_data import JobData


def check_plan(plan: SweepPlan, home: Path) -> JobData:
    """Checks a plan before Ray or MLflow are started, and returns the opened data of its job."""
    plan.resources.check(plan.job)
    resolve_target(plan.job.tracking.notify)
    search_job = plan.search_job()
    job_data = JobData.of(search_job, home)
    info = job_data.dataset.info
    _check_goals(plan)
    for goal in plan.space.goals:
        check_job(load_job(dump_job(search_job), {"evaluation.metric": goal.metric}), info)
    for setting in plan.try_first:
        check_job(asked_start(plan.space, search_job, setting).job or search_job, info)
    for search in search_plans(plan):
        if search.is_searched and search.number == 1:
            _check_corners(search.plan, info)
    control = [(CONTROL, plan.control)] if plan.control is not None else []
    for name, job in [*control, *plan.baselines]:
        verify = job.baseline is None  # a fitted one has the swept job's own data
        _check_baseline(name, JobData.of(plan.with_grid(job), home, verify=verify), job_data)
    return job_data


def _check_corners(plan: SweepPlan, info: DatasetInfo) -> None:
    """Raises UserError if the ends of the space's parameters do not fit the data."""
    job = dump_job(plan.search_job())
    for corner in corners(plan.space):
        drawn = load_job(job, corner)
        check_job(drawn, info)
        if "train.precision" in corner:
            refuse_auto(drawn, "a space")
        if "evaluation.ensemble" in corner:
            problem = "a search scores the classifier alone, so that no value would be better than another"
            raise UserError(problem, file=plan.space.file, key="evaluation.ensemble", allowed="in the job")


def _check_goals(plan: SweepPlan) -> None:
    """Raises UserError unless a training can choose the post-hoc keys by each goal's default direction."""
    if not plan.space.posthoc:
        return
    for goal in plan.space.goals:
        if goal.mode != default_mode(goal.metric):
            raise UserError(
                "the search over free keys takes the other direction",
                file=plan.space.file,
                key="search.mode",
                found=f"{goal.metric}: {goal.mode}",
                allowed=default_mode(goal.metric),
            )
    if len(set(plan.scores)) < len(plan.scores):
        raise UserError(
            "two metrics come to the same figure where keys are free",
            file=plan.space.file,
            key="search.metric",
            found=[goal.metric for goal in plan.space.goals],
        )


def _check_baseline(name: str, baseline: JobData, swept: JobData) -> None:
    """Raises UserError unless a baseline has the swept job's data, targets and number of workers."""
    pairs = {
        "data": (baseline.fingerprint, swept.fingerprint),
        "objective.classifier.labels": (
            baseline.job.objective.classifier.labels,
            swept.job.objective.classifier.labels,
        ),
        "train.workers": (baseline.job.train.workers, swept.job.train.workers),
    }
    for key, (found, allowed) in pairs.items():
        if found != allowed:
            raise UserError(
                "a baseline needs the swept job's", file=name, key=key, found=found, allowed=allowed
            )
