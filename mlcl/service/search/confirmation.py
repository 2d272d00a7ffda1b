"""Chooses the settings of a search that are trained again on fresh seeds.

In a race the best trials and the job as written are trained on further seeds and compared by their mean
validation score; the test split is not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from mlcl.config import JobConfig, dump_job, flatten, job_hash, load_job
from mlcl.results.sweep_arms import ArmSearch, Entrant
from mlcl.results.sweep_result import pareto, rank_trials
from mlcl.service.engine.entries import Entry, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.pruner import stop_of
from mlcl.service.search.sampling import agree
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role
from mlcl.tracking import State
from mlcl.training.neighbour_grid import Grid, best_mean

AS_WRITTEN = "as written"
"""The name of the setting that has the values of the job file and no drawn values."""
LARGEST_SHARE = 3
"""A race has at most one trial for this many complete trials of its search, but at least one trial."""


@dataclass(frozen=True)
class Candidate:
    """A setting that enters a race, or is confirmed on fresh seeds.

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
    return Candidate(
        _candidate_key(job), name, (f"best found ({name})",), job, dict(trial.settings), trial=name
    )


def _candidate_key(job: JobConfig) -> str:
    return f"confirm-{job_hash(job)[:12]}"


def planned_trials(search: SearchPlan, ledger: Ledger) -> list[Entry]:
    """Returns the comparable trials from which a search chooses; of its present space only those planned.

    An earlier command, such as one without fresh seeds, may have trained more in this search. A choice among
    these would favour its arm over the others. Settings that the user asked for always count.
    """
    trials, versions = ledger.counted_trials(search.scope), ledger.versions(search.scope)
    present_trials = [trial for trial in trials if trial.version == versions[-1].number]
    extra_keys = {
        trial.key for trial in present_trials[search.plan.most_trials :] if trial.origin != "asked for"
    }
    return [trial for trial in trials if trial.key not in extra_keys]


def entrants(search: SearchPlan, trials: Sequence[Entry]) -> list[Candidate]:
    """Returns the entrants of a search's race: the job as written and the best trials, equal jobs once."""
    count = entrant_count(
        search.plan.confirm, len(rank_trials(_drop_repeats(trials), search.plan.space.mode))
    )
    candidates = confirmed_candidates(search, trials, count)
    return [replace(candidate, key=f"race-{job_hash(candidate.job)[:12]}") for candidate in candidates]


def entrant_count(confirm: int, trials: int) -> int:
    """Returns how many of `trials` complete trials race: `confirm`, at most a third, at least one."""
    return min(confirm, max(1, trials // LARGEST_SHARE), trials)


def most_raced(search: SearchPlan) -> int:
    """Returns the largest number of trainings that the race of a search can have."""
    if not (search.races and search.plan.seeds):
        return 0
    trials = entrant_count(search.plan.confirm, search.most_trials) if search.is_searched else 0
    return len(search.race_seeds) * (1 + trials)


def most_confirmed(search: SearchPlan) -> int:
    """Returns the largest number of trainings on fresh seeds of a search: after a race, of one setting."""
    return search.plan.seeds * (1 + search.plan.confirm * (search.is_searched and not search.races))


def fix_neighbours(entrant: Candidate, knn: Mapping[str, float]) -> Candidate:
    """Returns a race's entrant as the setting to confirm, with k, lambda and temperature fixed to `knn`."""
    knn_settings = {f"evaluation.knn.{key}": value for key, value in knn.items()}
    grid = {"evaluation.knn.grid": None} if knn_settings else {}
    job = load_job(dump_job(entrant.job), {**knn_settings, **grid})
    return replace(entrant, key=_candidate_key(job), job=job, settings={**entrant.settings, **knn_settings})


def confirmed_candidates(
    search: SearchPlan, trials: Sequence[Entry], count: int | None = None
) -> list[Candidate]:
    """Returns the job as written and the `count` best trials as candidates, of which equal jobs are merged.

    With several goals the trials are those of the Pareto front. `count` is `plan.confirm` by default.
    """
    plan, prefix = search.plan, f"{search.plan.name}, " if search.scope else ""
    if not search.is_searched:
        return [_written_candidate(search, plan.name)]
    trials = _drop_repeats(trials)
    if plan.space.multi:
        trials = pareto(trials, plan.space.goals)
    candidates = [_written_candidate(search, f"{prefix}{AS_WRITTEN}")]
    best_trials = rank_trials(trials, plan.space.mode)[: plan.confirm if count is None else count]
    for rank, trial in enumerate(best_trials, start=1):
        name = "best found" if rank == 1 else f"no. {rank} found"
        candidate = replace(best_candidate(trial), labels=(f"{name} ({trial.label})",), role=search.role)
        candidates.append(candidate)
    return _merge_candidates(candidates)


def _drop_repeats(trials: Sequence[Entry]) -> list[Entry]:
    """Returns `trials` without repeats: of a trial and those that took its results, the first counts."""
    distinct_trials: dict[str, Entry] = {}
    for trial in trials:
        distinct_trials.setdefault(trial.same_as or trial.key, trial)
    return list(distinct_trials.values())


def _written_candidate(search: SearchPlan, name: str) -> Candidate:
    job = search.plan.search_job()
    return Candidate(_candidate_key(job), name, (name,), job, {}, search.role)


def _merge_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    merged_candidates: list[Candidate] = []
    jobs: list[dict[str, Any]] = []
    for candidate in candidates:
        job = flatten(dump_job(candidate.job))
        index = next((index for index, other_job in enumerate(jobs) if agree(job, other_job)), None)
        if index is None:
            merged_candidates.append(candidate)
            jobs.append(job)
        else:
            match = merged_candidates[index]
            merged_candidates[index] = replace(
                match,
                labels=(*match.labels, *candidate.labels),
                settings=candidate.settings or match.settings,
                trial=candidate.trial or match.trial,
            )
    return merged_candidates


def needs_race(search: SearchPlan, entrants: Sequence[Candidate]) -> bool:
    """Whether the entrants are trained in a race: a single one only if races choose the k-NN parameters."""
    return len(entrants) > 1 or (search.plan.knn_races and bool(entrants))


def race_results(search: SearchPlan, entrants: Sequence[Candidate], ledger: Ledger) -> list[Entrant]:
    """Returns the entrants of a race with their scores; a failed training has the score NaN.

    Returns an empty list if there is no race, or it has not ended.
    """
    if not needs_race(search, entrants):
        return []
    search_scores = {trial.label: trial.score for trial in ledger.counted_trials(search.scope)}
    results = []
    for candidate in entrants:
        seeds = ledger.seeds_of(scope_key(search.scope, candidate.key), len(search.race_seeds))
        if len(seeds) < len(search.race_seeds) or any(seed.resumable for seed in seeds):
            return []
        seed_scores = [seed.score if seed.state is State.COMPLETE else None for seed in seeds]
        scores = tuple(math.nan if score is None else score for score in seed_scores)
        entrant = Entrant(candidate.name, scores, search_scores.get(candidate.trial))
        grids = [seed.neighbours for seed in seeds]
        results.append(with_neighbours(entrant, grids, search.plan) if search.plan.knn_races else entrant)
    return results


def with_neighbours(entrant: Entrant, grids: Sequence[Grid], plan: SweepPlan) -> Entrant:
    """Returns an entrant scored at the k, lambda and temperature with the best mean over the race's seeds.

    `grids` has the grid of each training. If the score is a metric of the classifier (`val/...`), the model
    without neighbours (lambda 0) is compared, too, and wins a tie. The entrant is unchanged if a training
    failed or has no grid.
    """
    best, scores = best_mean(grids, plan.space.mode), entrant.scores
    if best is None or not math.isfinite(entrant.mean):
        return entrant
    setting, blended_scores = best
    sign, alone = (1 if plan.space.mode == "max" else -1), plan.score.startswith("val/")
    if alone and sign * fmean(scores) >= sign * fmean(blended_scores):
        return replace(entrant, alone=scores, knn={"lambda": 0.0})
    knn = {"k": setting.k, "lambda": setting.lambda_, "temperature": setting.temperature}
    return replace(entrant, scores=blended_scores, alone=scores, knn=knn)


def race_winner(search: SearchPlan, entrants: Sequence[Candidate], ledger: Ledger) -> Candidate | None:
    """Returns the winner of a race as the setting to be confirmed; None until all trainings have ended."""
    if entrants and not needs_race(search, entrants):
        return fix_neighbours(entrants[0], {})
    race = race_results(search, entrants, ledger)
    if not race:
        return None
    best = race_pick(race, search.plan.space.mode)
    return fix_neighbours(entrants[race.index(best)], best.knn)


def search_result(search: SearchPlan, entrants: Sequence[Candidate], ledger: Ledger) -> ArmSearch:
    """Returns the result of a search so far, with its pick, if known, and the entrants of an ended race."""
    trials, mode = planned_trials(search, ledger), search.plan.space.mode
    scores = [trial.score for trial in rank_trials(trials, mode) if trial.score is not None]
    race, stop = race_results(search, entrants, ledger), stop_of(search.plan, ledger, search.scope)
    tried_count = sum(trial.state in (State.COMPLETE, State.PRUNED) for trial in trials)
    result = ArmSearch(
        search.number, len(scores), stopped="" if stop is None else stop.sentence, tried=tried_count
    )
    if not race:
        alone = entrants and not needs_race(search, entrants)
        return replace(result, pick=entrants[0].name if alone else "")
    pick = race_pick(race, mode)
    return replace(result, race=tuple(race), pick=pick.name, kept=kept_share(pick, scores, mode))


def race_pick(entrants: Sequence[Entrant], mode: str) -> Entrant:
    """Returns the entrant with the best mean score: in a tie, or if each has a failed training, the first.

    Example:
        >>> written, found = Entrant("as written", (0.71, 0.73)), Entrant("trial 5", (0.70, 0.72), found=0.78)
        >>> race_pick([written, found], "max").name
        'as written'
    """
    finite_entrants = [entrant for entrant in entrants if math.isfinite(entrant.mean)]
    sign = 1.0 if mode == "max" else -1.0
    return max(finite_entrants, key=lambda entrant: sign * entrant.mean) if finite_entrants else entrants[0]


def kept_share(entrant: Entrant, scores: Sequence[float], mode: str) -> float | None:
    """Returns the fraction of an entrant's lead over the median trial that is left on the race's seeds.

    The lead is the entrant's score in the search minus the median of `scores`, the scores of all complete
    trials; the sign is reversed if lower is better. The result is 1 if the mean over the race's seeds equals
    the score in the search, 0 if it equals the median; None if the entrant has no lead in the search, or one
    of its trainings failed.
    """
    if entrant.found is None or not scores or not math.isfinite(entrant.mean):
        return None
    sign, median_score = 1.0 if mode == "max" else -1.0, median(scores)
    lead, race_mean = sign * (entrant.found - median_score), fmean(entrant.alone or entrant.scores)
    return sign * (race_mean - median_score) / lead if lead > 0 else None
