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
from mlcl.tracking import shown, tracking_uri
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
        drawn = load_job(job, corner)
        check_job(drawn, info)
        if drawn.encoder != plan.job.encoder:
            check_network(drawn, info)
        if has_heads(drawn) and not has_heads(plan.job) and drawn.views == 1:
            problem = "the space gives weight to heads of a job without: with one view and no control"
            allowed = "a weight above 0 in the job"
            raise UserError(problem, file=plan.space.file, key="objective.heads.*.weight", allowed=allowed)
        if "train.precision" in corner:
            refuse_auto(drawn, "a space")
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


EPOCHS = "train.epochs"


def epochs_each(search: SearchPlan) -> int:
    """Returns the largest number of epochs of one training of a search, as its job has or its space draws."""
    drawn = [its for its in search.plan.space.parameters if its.name == EPOCHS and search.is_searched]
    ends = [int(end[EPOCHS]) for its in drawn for end in its.domain.ends(EPOCHS)]
    return max(search.plan.job.epochs, *ends, 0)


def _most(search: SearchPlan) -> int:
    return search.most + most_raced(search) + most_confirmed(search)


def plan_sweep(plan: SweepPlan, home: Path) -> dict[str, Any]:
    """Returns the plan of a sweep as plain data, after all checks; prepares the data set if necessary."""
    job_data = check_plan(plan, home)
    plan = replace(with_scores(plan, home), redraws=redraws_validation(job_data.dataset))
    _check_resumed(plan, job_data, home)
    space, job = plan.space, plan.search_job()
    plans = search_plans(plan)
    searches = [each for each in plans if each.is_searched]
    confirmations = sum(most_raced(each) + most_confirmed(each) for each in plans)
    epochs = sum(_most(each) * epochs_each(each) for each in plans)
    return {
        "sweep": {
            "name": plan.name,
            "trials": sum(each.most for each in searches if each.role is Role.MODEL),
            "searches": sum(each.role is Role.MODEL for each in plans),
            "trials_of_arms": {
                each.arm: {
                    "trials": sum(its.most for its in searches if its.arm == each.arm),
                    "searched": [parameter.name for parameter in each.plan.space.parameters],
                }
                for each in searches
            },
            "baselines": [each.arm for each in plans if each.role is not Role.MODEL and each.number == 1],
            "most_confirmation_runs": confirmations,
            "score": plan.score,
            "mode": space.mode,
            "goals": {goal.metric: goal.mode for goal in space.goals},
            "sampler": space.search.sampler,
            "scheduler": space.search.scheduler,
            "rungs_at_epochs": rungs(space.search, job.train.epochs, job.evaluation.every),
            "most_epochs_each": max(map(epochs_each, plans)),
            "most_epochs": epochs,
            "disk": _disk(plan, plans, home),
            "encoding": forecast(
                [each.plan.job for each in plans], home, plan.resources.gpus, test=plan.seeds > 0
            ),
            "time": _time(plan.name, home, epochs),
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
            "tracking": shown(tracking_uri(home)),
        },
    }


def _check_resumed(plan: SweepPlan, job_data: JobData, home: Path) -> None:
    """Raises UserError if the command cannot resume the sweep of this name, or reuse `warm_start`.

    In place of `train.precision: auto` the job gets the precision of that sweep; nothing is measured.
    """
    known = [each for each in PRECISIONS if is_begun(plan, each, home)]
    kept = replace(plan, job=in_precision(plan.job, known[0])) if known else plan
    identity = sweep_identity(kept, job_data, home)
    sweep_folder(with_warm_sweep(kept, identity, home), home, identity)


def _disk(plan: SweepPlan, plans: Sequence[SearchPlan], home: Path) -> dict[str, Any]:
    """Returns `tracking.keep`, the largest number of kept models, and the mean bytes of those kept so far."""
    keep, searches = plan.job.tracking.keep, [each for each in plans if each.is_searched]
    fresh = sum(map(most_confirmed, plans))
    own = [each for each in searches if each.role is Role.MODEL and not plan.knn_races]
    raced = sum(entrant_count(its.plan.confirm, its.most) for its in own)
    most = {"best": raced + 1, "confirmed": raced + fresh, "all": sum(map(_most, plans))}[keep]
    folder = RunFolders(home, "sweeps").named(plan.name)
    kept = [] if folder is None else [file.parent for file in folder.path.glob(f"trials/*/{EMBEDDINGS}")]
    each = round(bytes_on_disk(*kept) / len(kept)) if kept else None
    return {"keep": keep, "most_trainings_kept": most, "bytes_each": each}


def _time(name: str, home: Path, epochs: int) -> dict[str, float] | None:
    """Estimates the seconds of `epochs` epochs from the trainings of the sweep `name`; None without any."""
    folder = RunFolders(home, "sweeps").named(name)
    entries = [] if folder is None else list(Ledger(folder.path).entries.values())
    ended = [each for each in entries if each.intermediate and each.cost.seconds]
    if not ended:
        return None
    done = sum(each.job["train"]["epochs"] if each.metrics else each.intermediate[-1][0] for each in ended)
    return {"seconds": sum(each.cost.seconds for each in ended) / done * epochs, "trainings": len(ended)}
