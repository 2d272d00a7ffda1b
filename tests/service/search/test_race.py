"""Tests that a race picks the best mean over fresh seeds, with neighbours if their settings are searched."""

import math
from statistics import fmean

import numpy as np
import pytest
from builders import tiny_job

from mlcl.config import load_space
from mlcl.results.sweep_arms import Entrant
from mlcl.service.search.arms import RACE_OFFSET
from mlcl.service.search.confirmation import entrant_count, kept_share, race_pick, with_neighbours
from mlcl.service.search.sweep_plan import SweepPlan, with_scores
from mlcl.tracking import State

WRITTEN = Entrant("as written", (0.70, 0.74))


@pytest.mark.parametrize(
    ("confirm", "trials", "count"),
    [(4, 24, 4), (4, 12, 4), (4, 11, 3), (2, 4, 1), (4, 1, 1), (1, 24, 1), (4, 0, 0)],
)
def test_at_most_a_third_of_the_complete_trials_enter_but_one_does(confirm, trials, count):
    assert entrant_count(confirm, trials) == count


def test_the_best_mean_is_picked_whatever_the_search_said():
    lucky_trial, steady_trial = Entrant("trial 3", (0.71, 0.69), 0.9), Entrant("trial 8", (0.73, 0.77), 0.8)
    assert race_pick([WRITTEN, lucky_trial, steady_trial], "max") is steady_trial
    assert race_pick([WRITTEN, lucky_trial], "max") is WRITTEN
    assert race_pick([WRITTEN, lucky_trial, steady_trial], "min") is lucky_trial
    equal_trial = Entrant("trial 5", (0.74, 0.70), 0.9)
    assert race_pick([WRITTEN, equal_trial], "max") is WRITTEN


def test_a_setting_whose_training_failed_is_picked_only_where_each_failed():
    broken_entrant = Entrant("trial 3", (0.99, math.nan), 0.99)
    assert race_pick([broken_entrant, WRITTEN], "max") is WRITTEN
    assert race_pick([broken_entrant, Entrant("trial 4", (math.nan, math.nan))], "max") is broken_entrant


def test_the_share_of_a_lead_that_is_kept():
    scores = [0.6, 0.7, 0.8]
    assert kept_share(Entrant("trial 2", (0.74, 0.76), 0.8), scores, "max") == pytest.approx(0.5)
    assert kept_share(Entrant("trial 2", (0.8, 0.8), 0.8), scores, "max") == pytest.approx(1)
    assert kept_share(Entrant("trial 0", (0.66, 0.64), 0.6), scores, "min") == pytest.approx(0.5)
    assert kept_share(Entrant("trial 1", (0.74, 0.76), 0.7), scores, "max") is None
    assert kept_share(Entrant("as written", (0.8, 0.8)), scores, "max") is None
    assert kept_share(Entrant("trial 2", (math.nan, 0.8), 0.8), scores, "max") is None


def plan(tmp_path, job, metric="val/accuracy", mode="max"):
    file = tmp_path / "space.yaml"
    file.write_text(
        f"space: {{evaluation.knn.k: {{choice: [1, 3]}}}}\nsearch: {{metric: {metric}, mode: {mode}}}"
    )
    sweep_plan = SweepPlan(job, load_space(file, job), "", "sweep", trials=4, seeds=2)
    return with_scores(sweep_plan, tmp_path)


def test_neighbours_are_chosen_by_the_mean_and_not_seed_by_seed(tmp_path, tiny):
    sweep_plan = plan(tmp_path, tiny_job(tiny))
    axes = {"k": [1, 3], "lambda": [0.5], "temperature": [1.0]}
    entrant = Entrant("trial 3", (0.70, 0.70), 0.8)
    # Chosen seed by seed, k would be 1 and then 3.
    grids = [{**axes, "values": [0.90, 0.75]}, {**axes, "values": [0.40, 0.72]}]
    raced_entrant = with_neighbours(entrant, grids, sweep_plan)
    assert (raced_entrant.scores, raced_entrant.alone, raced_entrant.found) == (
        (0.75, 0.72),
        (0.70, 0.70),
        0.8,
    )
    assert raced_entrant.knn == {"k": 3, "lambda": 0.5, "temperature": 1.0}
    # The share of the lead uses the score of the search, which has no neighbours.
    assert kept_share(raced_entrant, [0.6, 0.8], "max") == pytest.approx(0.0)
    worse_grids = [{**axes, "values": [0.70, 0.1]}] * 2
    # Without a gain, no neighbours are used.
    assert with_neighbours(entrant, worse_grids, sweep_plan).knn == {"lambda": 0.0}
    knn_plan = plan(tmp_path, tiny_job(tiny), "knn/val/accuracy")
    assert (knn_plan.score, knn_plan.fresh_score) == ("knn/val/accuracy", "knn/val/accuracy")
    assert with_neighbours(entrant, worse_grids, knn_plan).knn["k"] == 1


def test_a_setting_without_grids_has_no_choice(tmp_path, tiny):
    sweep_plan = plan(tmp_path, tiny_job(tiny))
    broken_entrant = Entrant("trial 3", (0.7, math.nan), 0.8)
    grid = {"k": [1], "lambda": [0.5], "temperature": [1.0], "values": [0.9]}
    assert with_neighbours(broken_entrant, [grid, {}], sweep_plan) is broken_entrant


def test_a_race_that_was_stopped_ends_on_fewer_seeds(world, job):
    text = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {race_seeds: SEEDS}"
    options = {"trials": 6, "seeds": 1, "confirm": 2}
    world.stop_when(lambda trial_job, _epoch: trial_job.train.seed == RACE_OFFSET + 2)
    report = world.run(world.plan(job, text.replace("SEEDS", "4"), **options))
    assert (report.state, report.arms[0].searches[0].race) == (State.STOPPED, ())
    report = world.run(world.plan(job, text.replace("SEEDS", "2"), **options))
    (search,) = report.arms[0].searches
    assert {len(entrant.scores) for entrant in search.race} == {2}
    assert (report.state, [confirmation.name for confirmation in report.confirmations]) == (
        State.COMPLETE,
        [search.pick],
    )


def test_a_race_finds_better_settings_than_the_first_of_the_search():
    """Tests a search whose scores have as much noise as the settings differ."""
    rng = np.random.default_rng(0)
    first_scores, race_scores = [], []
    for _ in range(400):
        true_scores = rng.normal(0, 1, 24)
        search_scores = true_scores + rng.normal(0, 1, 24)
        order = np.argsort(-search_scores)[: entrant_count(4, 24)]
        entrants = [
            Entrant(str(i), tuple(true_scores[i] + rng.normal(0, 1, 2)), search_scores[i]) for i in order
        ]
        first_scores.append(true_scores[order[0]])
        race_scores.append(true_scores[int(race_pick(entrants, "max").name)])
    assert fmean(race_scores) - fmean(first_scores) > 0.1
