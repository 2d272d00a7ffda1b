"""The choice of the settings that are trained again on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten, job_hash, load_job
from mlcl.results.sweep_result import pareto, ranked
from mlcl.service.engine.entries import Entry, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.race import Entrant, entrant_count, race_pick
from mlcl.service.search.sampling import agree
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.baseline_verdict import Role
from mlcl.tracking import State

AS_WRITTEN = "as written"
"""The name of the job that is searched, as it was written."""


@dataclass(frozen=True)
class Candidate:
    """A setting that is confirmed on fresh seeds.

    `name` does not change; `labels` have its present ranks, one for each name under which the same job was
    chosen.
    """

    key: str
    name: str
    labels: tuple[str, ...]
    job: JobConfig
    settings: Mapping[str, Any]
    role: Role = Role.MODEL


def best_candidate(trial: Entry) -> Candidate:
    """Returns the setting of a trial."""
    job, name = load_job(trial.job), trial.label
    return Candidate(_key(job), name, (f"best found ({name})",), job, dict(trial.settings))


def _key(job: JobConfig) -> str:
    return f"confirm-{job_hash(job)[:12]}"


def entrants(plan: SweepPlan, trials: Sequence[Entry]) -> list[Candidate]:
    """Returns the entrants of a search's race: the job as written, then its best trials.

    With several goals these are of the Pareto front. A trial of the job as written enters once, as this.
    """
    complete = ranked(trials, plan.space.mode)
    found = _models(plan, trials, entrant_count(plan.confirm, len(complete)))
    return [replace(each, key=f"race-{job_hash(each.job)[:12]}") for each in _merged(found)]


def race_winner(raced: Sequence[Candidate], ledger: Ledger, mode: str, scope: str = "") -> Candidate | None:
    """Returns the pick of a race; None until each training of it has ended."""
    by_name = {each.name: each for each in raced}
    field = []
    for name, each in by_name.items():
        seeds = ledger.seeds_of(scoped(scope, each.key))
        if not seeds or any(seed.resumable for seed in seeds):
            return None
        scores = [seed.score if seed.state is State.COMPLETE else None for seed in seeds]
        field.append(Entrant(name, tuple(math.nan if score is None else score for score in scores)))
    return by_name[race_pick(field, mode).name]


def _models(plan: SweepPlan, trials: Sequence[Entry], count: int) -> list[Candidate]:
    """Returns the job as written, and the best trials: with several goals those of the Pareto front."""
    if plan.space.multi:
        trials = pareto(trials, plan.space.goals)
    found = [Candidate("", AS_WRITTEN, (AS_WRITTEN,), plan.search_job(), {})]
    for rank, trial in enumerate(ranked(trials, plan.space.mode)[:count], start=1):
        name = "best found" if rank == 1 else f"no. {rank} found"
        found.append(replace(best_candidate(trial), labels=(f"{name} ({trial.label})",)))
    return found


def candidates(
    plan: SweepPlan,
    trials: Sequence[Entry],
    tuned: Mapping[str, Entry] = MappingProxyType({}),
    pick: Candidate | None = None,
) -> list[Candidate]:
    """Returns trained baselines, the job as written, the best found, and fitted baselines, in this order.

    With several goals the best found are those of the Pareto front. `tuned` has the best trials of baselines
    that were searched, by the baselines' names: they are confirmed in place of the jobs as written. The pick
    of a race is confirmed in place of the job as written and the best found.
    Settings that come to the same job, but for the last digits of its numbers, are confirmed once, under both
    names and with both roles.
    """
    baselines = [
        Candidate("", name, (name,), plan.with_grid(job), {}, Role.BASELINE) for name, job in plan.baselines
    ]
    found = [each for each in baselines if each.job.baseline is None]
    for order, each in enumerate(found):
        if each.name in tuned:
            its = best_candidate(tuned[each.name])
            found[order] = replace(its, labels=(f"{its.name}, best found",), role=Role.BASELINE)
    found += [pick] if pick is not None else _models(plan, trials, plan.confirm)
    return _merged([*found, *(each for each in baselines if each.job.baseline is not None)])


def _merged(found: Sequence[Candidate]) -> list[Candidate]:
    """Merges settings that come to the same job."""
    merged: list[Candidate] = []
    jobs: list[dict[str, Any]] = []
    for one in found:
        job = flatten(dump_job(one.job))
        at = next((at for at, other in enumerate(jobs) if agree(job, other)), None)
        if at is None:
            merged.append(replace(one, key=_key(one.job)))
            jobs.append(job)
        else:
            same = merged[at]
            merged[at] = replace(
                same,
                labels=(*same.labels, *one.labels),
                settings=one.settings or same.settings,
                role=same.role | one.role,
            )
    return merged
