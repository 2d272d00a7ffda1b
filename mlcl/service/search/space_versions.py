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


def space_hash(space: Space, warm: Iterable[str]) -> str:
    """Returns a hash of a space's parameters, post-hoc grid and goals, and of the `warm` sweeps' ids."""
    parts = [repr(space.parameters), repr(sorted(space.posthoc.items())), repr(space.goals), *sorted(warm)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def open_version(
    plan: SweepPlan, ledger: Ledger, home: Path, announce: Callable[[str], None], scope: str = ""
) -> SpaceVersion:
    """Returns the last version of a search's space if the space has not changed, else opens a new version.

    The sweeps whose trials are reused (`plan.warm_start` of this and earlier commands) are part of a version,
    so that another one makes a new version. A summary of the reused trials is announced.
    """
    space, versions = plan.space, ledger.versions(scope)
    before = versions[-1].warm if versions else ()
    warm = sorted({*before, *([plan.warm_start] if plan.warm_start else [])})
    found = space_hash(space, warm)
    if versions and versions[-1].space_hash == found:
        return versions[-1]
    kept, dropped = _keep(plan, ledger, home, warm, scope)
    version = SpaceVersion(
        number=len(versions),
        space_hash=found,
        space=plan.space_text,
        distributions={name: distribution_to_json(each) for name, each in distributions(space).items()},
        modes=tuple(goal.mode for goal in space.goals),
        kept=kept,
        dropped=dropped,
        warm=tuple(warm),
        parameters=[{"name": each.name, **each.domain.description()} for each in space.parameters],
    )
    ledger.open_version(version, scope)
    if versions or warm:
        announce(_summary(kept, dropped))
    return version


def _keep(
    plan: SweepPlan, ledger: Ledger, home: Path, warm: Iterable[str], scope: str
) -> tuple[dict[str, EarlierTrial], dict[str, str]]:
    """Returns the trials of this sweep and of `warm` sweeps that fit the space, and why the rest does not."""
    kept: dict[str, EarlierTrial] = {}
    dropped: dict[str, str] = {}
    sources = {"": ledger.trials(scope=scope)}
    for name in warm:
        try:
            sources[name] = _trials_of_same_search(Ledger(find_sweep(home, name)), scope)
        except UserError:
            dropped[name] = "is gone"
    for name, entries in sources.items():
        for entry in entries:
            key = f"{name}/{entry.key}" if name else entry.key
            try:
                kept[key] = _fitted(plan, entry)
            except Misfit as error:
                dropped[key] = str(error)
    return kept, dropped


def _trials_of_same_search(other: Ledger, scope: str) -> list[Entry]:
    """Returns the trials of the search with this number in another sweep, whose job may differ."""
    number, _, _ = scope.rpartition("-")
    scopes = [each for each in other.searches if each.rpartition("-")[0] == number]
    return [entry for each in scopes for entry in other.trials(scope=each)]


def _fitted(plan: SweepPlan, entry: Entry) -> EarlierTrial:
    """Returns an earlier trial with its point in the present space. Raises Misfit if it does not fit."""
    if entry.state not in TAKEN:
        raise Misfit(f"is {entry.state}")
    if entry.state is State.COMPLETE and len(entry.values) != len(plan.space.goals):
        raise Misfit("has other goals")
    base = dump_job(plan.search_job())
    scored = plan.space.posthoc or any(goal.metric.startswith("knn/") for goal in plan.space.goals)
    if scored and entry.job["evaluation"]["knn"] != base["evaluation"]["knn"]:
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
    found = folders.find(name) or folders.named(name)
    if found is None:
        known = sorted({record.name for _, record in folders.records()})
        allowed = ", ".join(known) or "none yet"
        raise UserError("no such sweep", key="--warm-start", found=name, allowed=allowed)
    return found.path


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


def _summary(kept: Mapping[str, EarlierTrial], dropped: Mapping[str, str]) -> str:
    lines = [f"{len(kept)} earlier trials fit the space and are taken over, {len(dropped)} are not"]
    reasons: dict[str, list[str]] = {}
    for key, reason in dropped.items():
        reasons.setdefault(reason, []).append(key)
    lines += [f"  {', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
    return "\n".join(lines)
