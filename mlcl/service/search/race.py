"""The race of a search: its best trials and the job as written, compared by validation on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

LARGEST_SHARE = 2
"""One in so many trials of a search may enter its race."""


@dataclass(frozen=True)
class Entrant:
    """A setting that is trained on the fresh seeds of a race.

    Attributes:
        name: The setting's name: `as written`, or that of its trial.
        scores: The validation score on each seed of the race, NaN where the training failed.
        found: The score of its trial in the search, None for a job as written that is no trial.
    """

    name: str
    scores: tuple[float, ...]
    found: float | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds, NaN where one of them failed."""
        return fmean(self.scores) if self.scores else math.nan


def entrant_count(confirm: int, trials: int) -> int:
    """Returns the number of trials that enter a race: at most half of the search's complete ones, but one.

    Args:
        confirm: The number that was asked for.
        trials: The number of complete trials.
    """
    return min(confirm, max(1, trials // LARGEST_SHARE), trials)


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
