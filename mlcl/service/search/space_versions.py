"""The versions of a search space. When the space changes, earlier trials that lie in it are reused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json

from mlcl.config import Space, dump_job, flatten
from mlcl.config.space.domains import Misfit
from mlcl.errors import UserError
from mlcl.service.engine.entries import EarlierTrial, Entry, SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sampling import distributions, fit
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.store import RunFolders
from mlcl.tracking import State

TAKEN = (State.COMPLETE, State.PRUNED)
"""The states of earlier trials that are reused, since a sampler can learn from them."""


def space_hash(space: Space, warm_sweeps: Iterable[str]) -> str:
    """Returns a hash of a space's parameters, post-hoc grid and goals, and of the ids `warm_sweeps`."""
    parts = [
        repr(space.parameters),
        repr(sorted(space.posthoc.items())),
        repr(space.goals),
        *sorted(warm_sweeps),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def open_version(
    plan: SweepPlan, ledger: Ledger, home: Path, announce: Callable[[str], None], scope: str = ""
) -> SpaceVersion:
    """Returns the last version of a search's space if the space has not changed, else opens a new version.

    The sweeps whose trials are reused (`plan.warm_start` of this and earlier commands) are part of a version,
    so that another one makes a new version. A summary of the reused trials is announced.
    """
    space, versions = plan.space, ledger.versions(scope)
    earlier_ids = versions[-1].warm if versions else ()
    warm_ids = sorted({*earlier_ids, *([plan.warm_start] if plan.warm_start else [])})
    current_hash = space_hash(space, warm_ids)
    if versions and versions[-1].space_hash == current_hash:
        return versions[-1]
    trials, drop_reasons = _keep_trials(plan, ledger, home, warm_ids, scope)
    version = SpaceVersion(
        number=len(versions),
        space_hash=current_hash,
        space=plan.space_text,
        distributions={
            name: distribution_to_json(distribution) for name, distribution in distributions(space).items()
        },
        modes=tuple(goal.mode for goal in space.goals),
        kept=trials,
        dropped=drop_reasons,
        warm=tuple(warm_ids),
        parameters=[
            {"name": parameter.name, **parameter.domain.description()} for parameter in space.parameters
        ],
    )
    ledger.open_version(version, scope)
    if versions or warm_ids:
        announce(_summary(trials, drop_reasons))
    return version


def _keep_trials(
    plan: SweepPlan, ledger: Ledger, home: Path, warm_ids: Iterable[str], scope: str
) -> tuple[dict[str, EarlierTrial], dict[str, str]]:
    """Returns the trials of this sweep and of `warm_ids` that fit the space, and why the rest does not."""
    trials: dict[str, EarlierTrial] = {}
    drop_reasons: dict[str, str] = {}
    sources = {"": ledger.trials(scope=scope)}
    for name in warm_ids:
        try:
            sources[name] = _same_search_trials(Ledger(find_sweep(home, name)), scope)
        except UserError:
            drop_reasons[name] = "is gone"
    for name, entries in sources.items():
        for entry in entries:
            key = f"{name}/{entry.key}" if name else entry.key
            try:
                trials[key] = _fit_trial(plan, entry)
            except Misfit as error:
                drop_reasons[key] = str(error)
    return trials, drop_reasons


def _same_search_trials(ledger: Ledger, scope: str) -> list[Entry]:
    """Returns the trials of the search with this number in another sweep, whose job may differ."""
    number, _, _ = scope.rpartition("-")
    scopes = [other_scope for other_scope in ledger.searches if other_scope.rpartition("-")[0] == number]
    return [entry for other_scope in scopes for entry in ledger.trials(scope=other_scope)]


def _fit_trial(plan: SweepPlan, entry: Entry) -> EarlierTrial:
    """Returns an earlier trial with its point in the present space. Raises Misfit if it does not fit."""
    if entry.state not in TAKEN:
        raise Misfit(f"is {entry.state}")
    if entry.state is State.COMPLETE and len(entry.values) != len(plan.space.goals):
        raise Misfit("has other goals")
    base = dump_job(plan.search_job())
    knn_scored = plan.space.posthoc or any(goal.metric.startswith("knn/") for goal in plan.space.goals)
    if knn_scored and entry.job["evaluation"]["knn"] != base["evaluation"]["knn"]:
        raise Misfit("was scored over other k, lambda or temperatures")
    job = {**entry.job, "experiment": base["experiment"]}
    return EarlierTrial(
        fit(plan.space, flatten(job), flatten(base)), entry.state, entry.values, entry.intermediate
    )


def find_sweep(home: Path, name: str) -> Path:
    """Returns the folder of the sweep with the id `name`, or else of the latest sweep with this name.

    Raises UserError if there is no such sweep.
    """
    folders = RunFolders(home, "sweeps")
    folder = folders.find(name) or folders.find_named(name)
    if folder is None:
        names = sorted({record.name for _, record in folders.records()})
        allowed = ", ".join(names) or "none yet"
        raise UserError("no such sweep", key="--warm-start", found=name, allowed=allowed)
    return folder.path


def with_warm_sweep(plan: SweepPlan, identity: Mapping[str, Any], home: Path) -> SweepPlan:
    """Returns the plan with the id of the sweep `warm_start`: its name may later be that of another sweep.

    Raises UserError if that sweep's scores or data differ from those in `identity`, or if the search tries
    every point of its space: it would leave out the points of that sweep.
    """
    if plan.warm_start is None:
        return plan
    if plan.points is not None:
        raise UserError(
            "a search of every setting of its space learns from no other trials",
            key="--warm-start",
            found=plan.warm_start,
            allowed="a sampler other than brute_force, and a space with several settings",
        )
    path = find_sweep(home, plan.warm_start)
    ledger = Ledger(path)
    for key in ("scores", "fingerprint"):
        if ledger.head.get(key) != identity[key]:
            raise UserError(
                f"its {key} differ from this sweep's",
                key="--warm-start",
                found=f"{plan.warm_start}: {ledger.head.get(key)}",
                allowed=identity[key],
            )
    return replace(plan, warm_start=path.name)


def _summary(trials: Mapping[str, EarlierTrial], drop_reasons: Mapping[str, str]) -> str:
    lines = [f"{len(trials)} earlier trials fit the space and are taken over, {len(drop_reasons)} are not"]
    keys_by_reason: dict[str, list[str]] = {}
    for key, reason in drop_reasons.items():
        keys_by_reason.setdefault(reason, []).append(key)
    lines += [f"  {', '.join(keys)}: {reason}" for reason, keys in keys_by_reason.items()]
    return "\n".join(lines)
