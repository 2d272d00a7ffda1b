"""The race of a search: its best trials and the job as written, compared by validation on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

from mlcl.results.sweep_arms import ArmSearch, Entrant
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.entries import scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.confirmation import Candidate, picked
from mlcl.service.search.evidence import stop_of
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State
from mlcl.training.neighbour_grid import Grid, best_mean


def race_results(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> list[Entrant]:
    """Returns the entrants with their scores in the race.

    Empty until each training has ended, and for a single one that has neither others to race with nor
    neighbours to choose.
    """
    if len(raced) < 2 and not search.plan.knn_races:
        return []
    found = {trial.label: trial.score for trial in ledger.counted(search.scope)}
    field = []
    for each in raced:
        seeds = ledger.seeds_of(scoped(search.scope, each.key))
        if len(seeds) < len(search.race_seeds) or any(seed.resumable for seed in seeds):
            return []
        done = [seed.score if seed.state is State.COMPLETE else None for seed in seeds]
        scores = tuple(math.nan if score is None else score for score in done)
        entrant = Entrant(each.name, scores, found.get(each.trial))
        grids = [seed.neighbours for seed in seeds]
        field.append(with_neighbours(entrant, grids, search.plan) if search.plan.knn_races else entrant)
    return field


def with_neighbours(entrant: Entrant, grids: Sequence[Grid], plan: SweepPlan) -> Entrant:
    """Returns an entrant at the k, lambda and temperature with the best mean over the seeds of the race.

    The model alone (lambda 0) is among them, first of equals, unless the score is a metric of neighbours.
    """
    found, scores = best_mean(grids, plan.space.mode), entrant.scores
    if found is None or not math.isfinite(entrant.mean):
        return entrant
    setting, blended = found
    sign, alone = (1 if plan.space.mode == "max" else -1), plan.score.startswith("val/")
    if alone and sign * fmean(scores) >= sign * fmean(blended):
        return replace(entrant, alone=scores, knn={"lambda": 0.0})
    knn = {"k": setting.k, "lambda": setting.lambda_, "temperature": setting.temperature}
    return replace(entrant, scores=blended, alone=scores, knn=knn)


def race_winner(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> Candidate | None:
    """Returns the entrant that a race picks, as it is confirmed: a single one without a race.

    None until each training of the race has ended.
    """
    if len(raced) == 1 and not search.plan.knn_races:
        return picked(raced[0], {})
    race = race_results(search, raced, ledger)
    if not race:
        return None
    best = race_pick(race, search.plan.space.mode)
    return picked(raced[race.index(best)], best.knn)


def search_result(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> ArmSearch:
    """Returns the result of a search with the entrants of its race."""
    counted, mode = ledger.counted(search.scope), search.plan.space.mode
    scores = [each.score for each in ranked(counted, mode) if each.score is not None]
    race, stop = race_results(search, raced, ledger), stop_of(search.plan, ledger, search.scope)
    found = ArmSearch(search.number, len(scores), stopped="" if stop is None else stop.sentence)
    if not race:
        alone = len(raced) == 1 and not search.plan.knn_races
        return replace(found, pick=raced[0].name if alone else "")
    pick = race_pick(race, mode)
    return replace(found, race=tuple(race), pick=pick.name, kept=kept_share(pick, scores, mode))


def race_pick(entrants: Sequence[Entrant], mode: str) -> Entrant:
    """Returns the entrant with the best mean, the earliest of equals.

    An entrant with a failed training is picked only where each has one: then the first of them is.

    Args:
        entrants: The job as written first, then the trials, the best one first.
        mode: max or min.

    Example:
        >>> written, found = Entrant("as written", (0.71, 0.73)), Entrant("trial 5", (0.70, 0.72), found=0.78)
        >>> race_pick([written, found], "max").name
        'as written'
    """
    sound = [each for each in entrants if math.isfinite(each.mean)]
    sign = 1.0 if mode == "max" else -1.0
    return max(sound, key=lambda each: sign * each.mean) if sound else entrants[0]


def kept_share(entrant: Entrant, scores: Sequence[float], mode: str) -> float | None:
    """Returns the share of an entrant's lead over the median trial that the seeds of the race keep.

    Args:
        entrant: The pick of the race.
        scores: The scores of all complete trials of the search.
        mode: max or min.

    Returns:
        1 where the fresh mean equals the score of the search, 0 where it equals the median; None where the
        entrant has no lead in the search, or a training of it failed.
    """
    if entrant.found is None or not scores or not math.isfinite(entrant.mean):
        return None
    sign, middle = 1.0 if mode == "max" else -1.0, median(scores)
    lead, fresh = sign * (entrant.found - middle), fmean(entrant.alone or entrant.scores)
    return sign * (fresh - middle) / lead if lead > 0 else None
