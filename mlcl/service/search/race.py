"""The race of a search, in which its best trials and the job as written are trained again on further seeds.

They are compared by their mean validation score over these seeds; the test split is not used.
"""

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
    """Returns the entrants of a race with their scores on its seeds; a failed training has the score NaN.

    The list is empty until every training has ended, and if there is no race, see `race_winner`.
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
    """Returns an entrant scored at the k, lambda and temperature with the best mean over the race's seeds.

    Unless the score is a metric of the neighbours, the model without neighbours (lambda 0) is compared, too,
    and wins a tie. The entrant is unchanged if a training failed or has no grid.
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
    """Returns the winner of a race as the setting to be confirmed; None until all its trainings have ended.

    A single entrant wins without a race, unless races choose the k-NN parameters.
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
    """Returns the entrant with the best mean score, the first one in a tie or if all have a failed training.

    Example:
        >>> written, found = Entrant("as written", (0.71, 0.73)), Entrant("trial 5", (0.70, 0.72), found=0.78)
        >>> race_pick([written, found], "max").name
        'as written'
    """
    sound = [each for each in entrants if math.isfinite(each.mean)]
    sign = 1.0 if mode == "max" else -1.0
    return max(sound, key=lambda each: sign * each.mean) if sound else entrants[0]


def kept_share(entrant: Entrant, scores: Sequence[float], mode: str) -> float | None:
    """Returns the fraction of an entrant's lead over the median trial that is left on the race's seeds.

    The lead is its score in the search minus the median of `scores`, those of all complete trials. The result
    is 1 if the mean over the race's seeds equals the score of the search, 0 if it equals the median; None if
    the entrant has no lead in the search, or one of its trainings failed.
    """
    if entrant.found is None or not scores or not math.isfinite(entrant.mean):
        return None
    sign, middle = 1.0 if mode == "max" else -1.0, median(scores)
    lead, fresh = sign * (entrant.found - middle), fmean(entrant.alone or entrant.scores)
    return sign * (fresh - middle) / lead if lead > 0 else None
