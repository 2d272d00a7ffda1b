"""A race takes the best mean of fresh seeds, and the job as written where that has it."""

import math
from statistics import fmean

import numpy as np
import pytest

from mlcl.results.sweep_arms import Entrant
from mlcl.service.search.confirmation import entrant_count
from mlcl.service.search.race import kept_share, race_pick

WRITTEN = Entrant("as written", (0.70, 0.74))


@pytest.mark.parametrize(
    ("confirm", "trials", "count"), [(4, 24, 4), (4, 8, 4), (4, 7, 3), (4, 1, 1), (1, 24, 1), (4, 0, 0)]
)
def test_at_most_half_of_the_complete_trials_enter_but_one_does(confirm, trials, count):
    assert entrant_count(confirm, trials) == count


def test_the_best_mean_is_picked_whatever_the_search_said():
    lucky, steady = Entrant("trial 3", (0.71, 0.69), 0.9), Entrant("trial 8", (0.73, 0.77), 0.8)
    assert race_pick([WRITTEN, lucky, steady], "max") is steady
    assert race_pick([WRITTEN, lucky], "max") is WRITTEN
    assert race_pick([WRITTEN, lucky, steady], "min") is lucky
    equal = Entrant("trial 5", (0.74, 0.70), 0.9)
    assert race_pick([WRITTEN, equal], "max") is WRITTEN


def test_a_setting_whose_training_failed_is_picked_only_where_each_failed():
    broken = Entrant("trial 3", (0.99, math.nan), 0.99)
    assert race_pick([broken, WRITTEN], "max") is WRITTEN
    assert race_pick([broken, Entrant("trial 4", (math.nan, math.nan))], "max") is broken


def test_the_share_of_a_lead_that_is_kept():
    scores = [0.6, 0.7, 0.8]
    assert kept_share(Entrant("trial 2", (0.74, 0.76), 0.8), scores, "max") == pytest.approx(0.5)
    assert kept_share(Entrant("trial 2", (0.8, 0.8), 0.8), scores, "max") == pytest.approx(1)
    assert kept_share(Entrant("trial 0", (0.66, 0.64), 0.6), scores, "min") == pytest.approx(0.5)
    assert kept_share(Entrant("trial 1", (0.74, 0.76), 0.7), scores, "max") is None
    assert kept_share(Entrant("as written", (0.8, 0.8)), scores, "max") is None
    assert kept_share(Entrant("trial 2", (math.nan, 0.8), 0.8), scores, "max") is None


def test_a_race_finds_better_settings_than_the_first_of_the_search():
    """Scores of the search have noise of the size of the differences between settings."""
    rng = np.random.default_rng(0)
    first, raced = [], []
    for _ in range(400):
        true = rng.normal(0, 1, 24)
        found = true + rng.normal(0, 1, 24)
        order = np.argsort(-found)[: entrant_count(4, 24)]
        field = [Entrant(str(i), tuple(true[i] + rng.normal(0, 1, 2)), found[i]) for i in order]
        first.append(true[order[0]])
        raced.append(true[int(race_pick(field, "max").name)])
    assert fmean(raced) - fmean(first) > 0.1
