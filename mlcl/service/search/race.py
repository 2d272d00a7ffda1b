"""The race of a search: its best trials and the job as written, compared by validation on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from mlcl.results.sweep_arms import ArmSearch, Entrant
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.entries import scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.confirmation import Candidate, picked
from mlcl.tracking import State


def race_results(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> list[Entrant]:
    """Returns the entrants with their scores in the race.

    Empty for a single one, which has none to race with, and until each training has ended.
    """
    if len(raced) < 2:
        return []
    found = {trial.label: trial.score for trial in ledger.counted(search.scope)}
    field = []
    for each in raced:
        seeds = ledger.seeds_of(scoped(search.scope, each.key))
        if len(seeds) < len(search.race_seeds) or any(seed.resumable for seed in seeds):
            return []
        scores = [seed.score if seed.state is State.COMPLETE else None for seed in seeds]
        field.append(
            Entrant(each.name, tuple(math.nan if s is None else s for s in scores), found.get(each.trial))
        )
    return field


def race_winner(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> Candidate | None:
    """Returns the entrant that a race picks, as it is confirmed: a single one without a race.

    None until each training of the race has ended.
    """
    if len(raced) == 1:
        return picked(raced[0])
    race = race_results(search, raced, ledger)
    return picked(raced[race.index(race_pick(race, search.plan.space.mode))]) if race else None


def search_result(search: SearchPlan, raced: Sequence[Candidate], ledger: Ledger) -> ArmSearch:
    """Returns the result of a search with the entrants of its race."""
    counted, mode = ledger.counted(search.scope), search.plan.space.mode
    scores = [each.score for each in ranked(counted, mode) if each.score is not None]
    race = race_results(search, raced, ledger)
    if not race:
        return ArmSearch(search.number, len(scores), pick=raced[0].name if len(raced) == 1 else "")
    pick = race_pick(race, mode)
    kept = kept_share(pick, scores, mode)
    return ArmSearch(search.number, len(scores), tuple(race), pick.name, kept)


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
    lead = sign * (entrant.found - middle)
    return sign * (entrant.mean - middle) / lead if lead > 0 else None
