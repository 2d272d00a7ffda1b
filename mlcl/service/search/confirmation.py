"""Chooses the settings of a search that are trained again on fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten, job_hash, load_job
from mlcl.results.sweep_result import pareto, ranked
from mlcl.service.engine.entries import Entry
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.sampling import agree
from mlcl.significance.roles import Role

AS_WRITTEN = "as written"
"""The name of the searched job with the values of its file, without drawn ones."""
LARGEST_SHARE = 2
"""At most one in this many complete trials of a search may enter its race."""


@dataclass(frozen=True)
class Candidate:
    """A setting that is confirmed on fresh seeds.

    `name` does not change; `labels` say why it was chosen, such as its present rank in the search. `trial` is
    the label of the search trial with this setting; empty if there is none.
    """

    key: str
    name: str
    labels: tuple[str, ...]
    job: JobConfig
    settings: Mapping[str, Any]
    role: Role = Role.MODEL
    trial: str = ""


def best_candidate(trial: Entry) -> Candidate:
    """Returns the setting of a trial as a candidate with the label `best found`."""
    job, name = load_job(trial.job), trial.label
    return Candidate(_key(job), name, (f"best found ({name})",), job, dict(trial.settings), trial=name)


def _key(job: JobConfig) -> str:
    return f"confirm-{job_hash(job)[:12]}"


def entrants(search: SearchPlan, trials: Sequence[Entry]) -> list[Candidate]:
    """Returns the settings of a search's race: the job as written, then its best trials, equal ones once."""
    trained = [trial for trial in trials if not trial.same_as]
    count = entrant_count(search.plan.confirm, len(ranked(trained, search.plan.space.mode)))
    found = _settings(search, trials, count)
    return [replace(each, key=f"race-{job_hash(each.job)[:12]}") for each in found]


def entrant_count(confirm: int, trials: int) -> int:
    """Returns how many trials race: `confirm`, at most half of the complete `trials`, at least one."""
    return min(confirm, max(1, trials // LARGEST_SHARE), trials)


def picked(entrant: Candidate, knn: Mapping[str, float]) -> Candidate:
    """Returns the setting to confirm of a race's entrant, with the k, lambda and temperature of `knn`."""
    chosen = {f"evaluation.knn.{key}": value for key, value in knn.items()}
    grid = {"evaluation.knn.grid": None} if chosen else {}
    job = load_job(dump_job(entrant.job), {**chosen, **grid})
    return replace(entrant, key=_key(job), job=job, settings={**entrant.settings, **chosen})


def confirmed_candidates(search: SearchPlan, trials: Sequence[Entry]) -> list[Candidate]:
    """Returns the settings that are confirmed without a race: the job as written, then the best trials.

    With several goals, the trials are taken from the Pareto front.
    """
    return _settings(search, trials, search.plan.confirm)


def _settings(search: SearchPlan, trials: Sequence[Entry], count: int) -> list[Candidate]:
    """Returns the job as written and the `count` best trials, in which equal jobs are merged."""
    plan, prefix = search.plan, f"{search.plan.name}, " if search.scope else ""
    if not search.is_searched:
        return [_written(search, plan.name)]
    trials = [trial for trial in trials if not trial.same_as]  # one setting takes one place
    if plan.space.multi:
        trials = pareto(trials, plan.space.goals)
    found = [_written(search, f"{prefix}{AS_WRITTEN}")]
    for rank, trial in enumerate(ranked(trials, plan.space.mode)[:count], start=1):
        name = "best found" if rank == 1 else f"no. {rank} found"
        its = replace(best_candidate(trial), labels=(f"{name} ({trial.label})",), role=search.role)
        found.append(its)
    return _merged(found)


def _written(search: SearchPlan, name: str) -> Candidate:
    job = search.plan.search_job()
    return Candidate(_key(job), name, (name,), job, {}, search.role)


def _merged(found: Sequence[Candidate]) -> list[Candidate]:
    """Merges settings whose jobs are equal, and joins their labels."""
    merged: list[Candidate] = []
    jobs: list[dict[str, Any]] = []
    for one in found:
        job = flatten(dump_job(one.job))
        at = next((at for at, other in enumerate(jobs) if agree(job, other)), None)
        if at is None:
            merged.append(one)
            jobs.append(job)
        else:
            same = merged[at]
            merged[at] = replace(
                same,
                labels=(*same.labels, *one.labels),
                settings=one.settings or same.settings,
                trial=one.trial or same.trial,
            )
    return merged
