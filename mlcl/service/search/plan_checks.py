"""Checks the plan of a sweep before anything is started, and describes it for `mlcl sweep --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config import corners, default_mode, dump_job, load_job
from mlcl.data import DatasetInfo
from mlcl.data.validation_rows import redraws_validation
from mlcl.errors import UserError
from mlcl.files import bytes_on_disk
from mlcl.service.engine.encoding import forecast
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.precision import refuse_auto
from mlcl.service.engine.progress import resolve_target
from mlcl.service.search.arms import CONTROL, SearchPlan, has_heads, search_plans
from mlcl.service.search.confirmation import entrant_count, most_confirmed, most_raced
from mlcl.service.search.pruner import rungs
from mlcl.service.search.sampling import describe, why_outside
from mlcl.service.search.space_versions import with_warm_sweep
from mlcl.service.search.starts import asked_start
from mlcl.service.search.sweep_plan import (
    SweepPlan,
    is_begun,
    sweep_folder,
    sweep_identity,
    with_scores,
)
from mlcl.significance.roles import Role
from mlcl.store import RunFolders
from mlcl.tracking import hide_password, tracking_uri
from mlcl.training.checks import check_job, check_network
from mlcl.training.job_data import JobData, job_plan
from mlcl.training.precision import PRECISIONS
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT
from mlcl.training.step_precision import in_precision


def check_plan(plan: SweepPlan, home: Path) -> JobData:
    """Raises UserError for a wrong plan, before Ray or MLflow are started; returns the data of its job."""
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
        verify = job.baseline is None  # a fitted baseline reads the swept job's data, already verified
        _check_baseline(name, JobData.of(plan.with_grid(job), home, verify=verify), job_data)
    return job_data


def _check_corners(plan: SweepPlan, info: DatasetInfo) -> None:
    """Raises UserError if a corner of the space does not fit the data, or varies a key that must not vary."""
    job = dump_job(plan.search_job())
    for corner in corners(plan.space):
        corner_job = load_job(job, corner)
        check_job(corner_job, info)
        if corner_job.encoder != plan.job.encoder:
            check_network(corner_job, info)
        if has_heads(corner_job) and not has_heads(plan.job) and corner_job.views == 1:
            problem = "the space gives weight to heads of a job without: with one view and no control"
            allowed = "a weight above 0 in the job"
            raise UserError(problem, file=plan.space.file, key="objective.heads.*.weight", allowed=allowed)
        if "train.precision" in corner:
            refuse_auto(corner_job, "a space")
        if "evaluation.ensemble" in corner:
            problem = "a search scores the classifier alone, so that no value would be better than another"
            raise UserError(problem, file=plan.space.file, key="evaluation.ensemble", allowed="in the job")


def _check_goals(plan: SweepPlan) -> None:
    """Raises UserError if a space with post-hoc keys has goals by which trainings cannot choose these.

    Trainings choose by the default direction of a goal's metric, and the goals need different metrics then.
    """
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
            "two metrics are the same figure in a search over free keys",
            file=plan.space.file,
            key="search.metric",
            found=[goal.metric for goal in plan.space.goals],
        )


def _check_baseline(name: str, baseline_data: JobData, swept_data: JobData) -> None:
    """Raises UserError unless a baseline has the swept job's data, targets and number of workers."""
    pairs = {
        "data": (baseline_data.fingerprint, swept_data.fingerprint),
        "objective.classifier.labels": (
            baseline_data.job.objective.classifier.labels,
            swept_data.job.objective.classifier.labels,
        ),
        "train.workers": (baseline_data.job.train.workers, swept_data.job.train.workers),
    }
    for key, (value, swept_value) in pairs.items():
        if value != swept_value:
            raise UserError(
                "a baseline needs the swept job's", file=name, key=key, found=value, allowed=swept_value
            )


EPOCHS = "train.epochs"


def epochs_each(search: SearchPlan) -> int:
    """Returns the largest number of epochs of one training of a search, as its job has or its space draws."""
    parameters = [
        parameter
        for parameter in search.plan.space.parameters
        if parameter.name == EPOCHS and search.is_searched
    ]
    ends = [int(end[EPOCHS]) for parameter in parameters for end in parameter.domain.ends(EPOCHS)]
    return max(search.plan.job.epochs, *ends, 0)


def _max_trainings(search: SearchPlan) -> int:
    return search.most_trials + most_raced(search) + most_confirmed(search)


def plan_sweep(plan: SweepPlan, home: Path) -> dict[str, Any]:
    """Returns the plan of a sweep as plain data, after all checks; prepares the data set if necessary."""
    job_data = check_plan(plan, home)
    plan = replace(with_scores(plan, home), redraws=redraws_validation(job_data.dataset))
    _check_resumed(plan, job_data, home)
    space, job = plan.space, plan.search_job()
    plans = search_plans(plan)
    searches = [search for search in plans if search.is_searched]
    confirmations = sum(most_raced(search) + most_confirmed(search) for search in plans)
    epochs = sum(_max_trainings(search) * epochs_each(search) for search in plans)
    return {
        "sweep": {
            "name": plan.name,
            "trials": sum(search.most_trials for search in searches if search.role is Role.MODEL),
            "searches": sum(search.role is Role.MODEL for search in plans),
            "trials_of_arms": {
                search.arm: {
                    "trials": sum(other.most_trials for other in searches if other.arm == search.arm),
                    "searched": [parameter.name for parameter in search.plan.space.parameters],
                }
                for search in searches
            },
            "baselines": [
                search.arm for search in plans if search.role is not Role.MODEL and search.number == 1
            ],
            "most_confirmation_runs": confirmations,
            "score": plan.score,
            "mode": space.mode,
            "goals": {goal.metric: goal.mode for goal in space.goals},
            "sampler": space.search.sampler,
            "scheduler": space.search.scheduler,
            "rungs_at_epochs": rungs(space.search, job.train.epochs, job.evaluation.every),
            "most_epochs_each": max(map(epochs_each, plans)),
            "most_epochs": epochs,
            "disk": _estimate_disk(plan, plans, home),
            "encoding": forecast(
                [search.plan.job for search in plans], home, plan.resources.gpus, test=plan.seeds > 0
            ),
            "time": _estimate_time(plan.name, home, epochs),
            "budget": plan.resources.budget and plan.resources.budget.text,
            "searched": describe(space, plan.job),
            "tried_first": [dict(setting) for setting in plan.try_first],
            "outside": why_outside(space, job),
            "answered_after_training": {key: len(values) for key, values in space.posthoc.items()},
        },
        **job_plan(job_data),
        "writes": {
            "folder": str(home / "sweeps" / "<sweep id>"),
            "files": [f"trials/<trial>/{{checkpoint.pt,{RESULT},{EMBEDDINGS},{MODEL}/}}"],
            "tracking": hide_password(tracking_uri(home)),
        },
    }


def _check_resumed(plan: SweepPlan, job_data: JobData, home: Path) -> None:
    """Raises UserError if the command cannot resume the sweep of this name, or reuse `warm_start`.

    In place of `train.precision: auto` the job gets the precision of that sweep; nothing is measured.
    """
    begun_precisions = [precision for precision in PRECISIONS if is_begun(plan, precision, home)]
    resumed_plan = (
        replace(plan, job=in_precision(plan.job, begun_precisions[0])) if begun_precisions else plan
    )
    identity = sweep_identity(resumed_plan, job_data, home)
    sweep_folder(with_warm_sweep(resumed_plan, identity, home), home, identity)


def _estimate_disk(plan: SweepPlan, plans: Sequence[SearchPlan], home: Path) -> dict[str, Any]:
    """Returns `tracking.keep`, the largest number of kept models, and the mean bytes of those kept so far."""
    keep, searches = plan.job.tracking.keep, [search for search in plans if search.is_searched]
    fresh_count = sum(map(most_confirmed, plans))
    model_searches = [search for search in searches if search.role is Role.MODEL and not plan.knn_races]
    raced_count = sum(entrant_count(search.plan.confirm, search.most_trials) for search in model_searches)
    most_kept = {
        "best": raced_count + 1,
        "confirmed": raced_count + fresh_count,
        "all": sum(map(_max_trainings, plans)),
    }[keep]
    folder = RunFolders(home, "sweeps").find_named(plan.name)
    kept_folders = (
        [] if folder is None else [file.parent for file in folder.path.glob(f"trials/*/{EMBEDDINGS}")]
    )
    mean_bytes = round(bytes_on_disk(*kept_folders) / len(kept_folders)) if kept_folders else None
    return {"keep": keep, "most_trainings_kept": most_kept, "bytes_each": mean_bytes}


def _estimate_time(name: str, home: Path, epochs: int) -> dict[str, float] | None:
    """Estimates the seconds of `epochs` epochs from the trainings of the sweep `name`; None without any."""
    folder = RunFolders(home, "sweeps").find_named(name)
    entries = [] if folder is None else list(Ledger(folder.path).entries.values())
    trainings = [training for training in entries if training.intermediate and training.cost.seconds]
    if not trainings:
        return None
    epochs_done = sum(
        training.job["train"]["epochs"] if training.metrics else training.intermediate[-1][0]
        for training in trainings
    )
    return {
        "seconds": sum(training.cost.seconds for training in trainings) / epochs_done * epochs,
        "trainings": len(trainings),
    }
