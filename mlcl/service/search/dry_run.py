"""The plan that `mlcl sweep --dry-run` prints: data, task and trainings of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcl.files import bytes_on_disk
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import SearchPlan, search_plans
from mlcl.service.search.confirmation import entrant_count
from mlcl.service.search.plan_checks import check_plan
from mlcl.service.search.pruner import rungs
from mlcl.service.search.sampling import describe
from mlcl.service.search.sweep_plan import SweepPlan, with_scores
from mlcl.significance.roles import Role
from mlcl.store import RunFolders
from mlcl.tracking import shown, tracking_uri
from mlcl.training.job_data import job_plan
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT

EPOCHS = "train.epochs"


def plan_sweep(plan: SweepPlan, home: Path) -> dict[str, Any]:
    """Returns the plan of a sweep as plain data, after all checks; prepares the data set if necessary."""
    job_data = check_plan(plan, home)
    plan = with_scores(plan, home)
    space, job = plan.space, plan.search_job()
    plans = search_plans(plan)
    searches = [each for each in plans if each.is_searched]
    confirmations = sum(map(_fresh_trainings, plans)) if plan.seeds else 0
    drawn = [its for its in space.parameters if its.name == EPOCHS]
    epochs = max(job.train.epochs, *(end[EPOCHS] for its in drawn for end in its.domain.ends(EPOCHS)), 1)
    trained = sum(each.plan.most for each in searches) + confirmations
    return {
        "sweep": {
            "name": plan.name,
            "trials": sum(each.plan.most for each in searches if each.role is Role.MODEL),
            "searches": sum(each.role is Role.MODEL for each in plans),
            "trials_of_arms": {
                each.arm: {
                    "trials": sum(its.plan.most for its in searches if its.arm == each.arm),
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
            "most_epochs_each": epochs,
            "most_epochs": trained * epochs,
            "disk": _disk(plan, plans, home),
            "time": _time(plan.name, home, trained * epochs),
            "budget": plan.resources.budget and plan.resources.budget.text,
            "searched": describe(space, plan.job),
            "tried_first": [dict(setting) for setting in plan.try_first],
            "answered_after_training": {key: len(values) for key, values in space.posthoc.items()},
        },
        **job_plan(job_data),
        "writes": {
            "folder": str(home / "sweeps" / "<sweep id>"),
            "files": [
                f"trials/<trial>/{{checkpoint.pt,{RESULT},{EMBEDDINGS},{MODEL}/}}",
            ],
            "tracking": shown(tracking_uri(home)),
        },
    }


def _fresh_trainings(search: SearchPlan) -> int:
    """Returns the largest number of trainings in the race and in the confirmation of a search."""
    if not search.races:
        return search.plan.seeds * (1 + search.plan.confirm if search.is_searched else 1)
    entrants = 1 + (entrant_count(search.plan.confirm, search.plan.most) if search.is_searched else 0)
    return entrants * len(search.race_seeds) + search.plan.seeds


def _disk(plan: SweepPlan, plans: Sequence[SearchPlan], home: Path) -> dict[str, Any]:
    """Returns which trainings keep model and embeddings, their largest number, and the bytes of one.

    The bytes are the mean over the trainings on the disk of an earlier sweep with this name; None if there
    are none.
    """
    keep, searches = plan.job.tracking.keep, [each for each in plans if each.is_searched]
    fresh = sum(each.plan.seeds for each in plans)
    own = [each.plan for each in searches if each.role is Role.MODEL and not plan.knn_races]
    raced = sum(entrant_count(its.confirm, its.most) for its in own)
    every = sum(each.plan.most for each in searches) + sum(map(_fresh_trainings, plans)) * bool(plan.seeds)
    most = {"best": raced + 1, "confirmed": raced + fresh, "all": every}[keep]
    folder = RunFolders(home, "sweeps").named(plan.name)
    kept = [] if folder is None else [file.parent for file in folder.path.glob(f"trials/*/{EMBEDDINGS}")]
    each = round(bytes_on_disk(*kept) / len(kept)) if kept else None
    return {"keep": keep, "most_trainings_kept": most, "bytes_each": each}


def _time(name: str, home: Path, epochs: int) -> dict[str, float] | None:
    """Estimates the seconds that a number of epochs takes, from ended trainings of the sweep of this name.

    Returns the seconds and the number of these trainings; None if there are none.
    """
    folder = RunFolders(home, "sweeps").named(name)
    entries = [] if folder is None else list(Ledger(folder.path).entries.values())
    ended = [each for each in entries if each.intermediate and each.cost.seconds]
    if not ended:
        return None
    done = sum(each.job["train"]["epochs"] if each.metrics else each.intermediate[-1][0] for each in ended)
    return {"seconds": sum(each.cost.seconds for each in ended) / done * epochs, "trainings": len(ended)}
