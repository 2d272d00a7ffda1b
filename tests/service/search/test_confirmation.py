"""Tests of the choice of the best trials and of the settings that are trained again on fresh seeds."""

import itertools
import random
from dataclasses import replace
from statistics import fmean

import pytest
from builders import tiny_job
from stored_runs import TAGS

from mlcl.config import Goal, dump_job, load_job, load_space
from mlcl.results.sweep_result import pareto, rank_trials
from mlcl.service.engine.entries import Entry
from mlcl.service.search.arms import control_job, search_plans
from mlcl.service.search.confirmation import confirmed_candidates, entrants, fix_neighbours
from mlcl.service.search.plan_checks import plan_sweep
from mlcl.service.search.search_source import score_training
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role
from mlcl.tracking import State
from mlcl.training.baselines.jobs import baseline_job
from mlcl.training.context import ONE_PROCESS
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

UP_DOWN = (Goal("val/accuracy", "max"), Goal("val/hamming_loss", "min"))

LR = "space: {train.lr: {log_float: [0.001, 0.1]}}"


def entry(number, score=None, state=State.COMPLETE, values=None, job=None, settings=None):
    values = values or ([] if score is None else [score])
    return Entry(
        f"t{number}",
        f"trial {number}",
        job or {},
        settings or {},
        number=number,
        state=state,
        score=score,
        values=values,
    )


def test_the_best_first_and_the_earliest_of_equals():
    trials = [entry(0, 0.1), entry(1, 0.5), entry(2, 0.9, State.PRUNED), entry(3, 0.5), entry(4, 0.0)]
    assert [trial.number for trial in rank_trials(trials, "max")] == [1, 3, 0, 4]
    assert [trial.number for trial in rank_trials(trials, "min")] == [4, 0, 1, 3]
    assert rank_trials([entry(0, state=State.FAILED), entry(1, 0.3, State.STOPPED)], "max") == []


def test_the_front_has_what_no_other_beats():
    rng = random.Random(0)
    points = [[rng.randint(0, 5) / 5, rng.randint(0, 5) / 5] for _ in range(40)]
    trials = [entry(n, p[0], values=p) for n, p in enumerate(points)]
    trials.append(entry(99, 1.0, State.PRUNED))
    beaten_numbers = {
        a.number
        for a, b in itertools.permutations(trials[:40], 2)
        if b.values[0] >= a.values[0] and b.values[1] <= a.values[1] and b.values != a.values
    }
    front = [trial.number for trial in pareto(trials, UP_DOWN)]
    assert front == [number for number in range(40) if number not in beaten_numbers]
    assert pareto([], UP_DOWN) == []


@pytest.fixture
def plan(tiny, tmp_path):
    def make(search="", text=LR, **options):
        job = tiny_job(tiny)
        text = f"{text}\n{search}"
        (tmp_path / "space.yaml").write_text(text)
        space = load_space(tmp_path / "space.yaml", job)
        return SweepPlan(job, space, text, "sweep", trials=9, seeds=2, **options)

    return make


def trained(plan, number, lr, score, values=None):
    job = load_job(dump_job(plan.search_job()), {"train.lr": lr})
    return entry(number, score, values=values, job=dump_job(job), settings={"train.lr": lr})


def own(plan):
    return next(search for search in search_plans(plan) if search.role is Role.MODEL)


def labels(found):
    return [" = ".join(candidate.labels) for candidate in found]


def test_the_job_as_written_and_the_best_are_confirmed_without_a_race(plan):
    search = own(plan("search: {race_seeds: 0}", confirm=2))
    trials = [trained(search.plan, n, lr, score) for n, (lr, score) in enumerate([(0.02, 0.4), (0.03, 0.6)])]
    candidates = confirmed_candidates(search, trials)
    assert not search.races
    assert labels(candidates) == ["as written", "best found (trial 1)", "no. 2 found (trial 0)"]
    assert [dict(candidate.settings) for candidate in candidates] == [
        {},
        {"train.lr": 0.03},
        {"train.lr": 0.02},
    ]
    assert len({candidate.key for candidate in candidates}) == 3
    assert confirmed_candidates(search, trials) == candidates


def test_at_most_a_third_of_the_trials_race(plan):
    search = own(plan(confirm=4))
    trials = [trained(search.plan, n, 0.01 * n, 0.1 * n) for n in range(1, 10)]
    candidates = entrants(search, trials)
    assert search.races
    assert [candidate.name for candidate in candidates] == ["as written", "trial 9", "trial 8", "trial 7"]
    assert [candidate.trial for candidate in candidates] == ["", "trial 9", "trial 8", "trial 7"]
    assert {candidate.key.partition("-")[0] for candidate in candidates} == {"race"}
    assert fix_neighbours(candidates[1], {}).key.startswith("confirm-")


def test_repeats_of_a_trial_of_another_search_count_once(plan):
    search = own(plan(confirm=4))
    trials = [trained(search.plan, n, 0.01 + n / 100, 0.1 * n) for n in (1, 2)]
    repeats = [replace(trained(search.plan, n, 0.05, 0.9), same_as="other-trial") for n in range(3, 7)]
    assert [candidate.name for candidate in entrants(search, [*trials, *repeats])] == [
        "as written",
        "trial 3",
    ]
    raceless_search = own(plan("search: {race_seeds: 0}", confirm=2))
    candidates = confirmed_candidates(raceless_search, [*trials, *repeats])
    assert [candidate.name for candidate in candidates] == ["as written", "trial 3", "trial 2"]


def test_what_is_not_searched_is_confirmed_as_written(plan):
    baseline = ("tfidf_svm", baseline_job(tiny_job("d"), "tfidf_svm"))
    space_text = "space: {train.lr: {log_float: [0.001, 0.1]}, evaluation.knn.k: {choice: [1, 3]}}"
    svm_search, own_search = search_plans(plan(baselines=[baseline], text=space_text))
    assert (svm_search.is_searched, own_search.is_searched) == (False, True)
    (candidate,) = confirmed_candidates(svm_search, [])
    assert (candidate.name, candidate.labels, candidate.role) == ("tfidf_svm", ("tfidf_svm",), Role.BASELINE)
    assert candidate.job.evaluation.knn is None
    assert candidate.job.experiment == own_search.plan.job.experiment


def test_a_trial_of_the_job_as_written_is_one_setting_under_both_names(plan):
    search = own(plan())
    # An earlier release drew the job as written with this rounding error.
    rounded_lr = search.plan.job.train.lr * (1 + 1e-15)
    (candidate,) = entrants(search, [trained(search.plan, 4, rounded_lr, 0.5)])
    assert labels([candidate]) == ["as written = best found (trial 4)"]
    assert (candidate.name, candidate.trial, candidate.settings) == (
        "as written",
        "trial 4",
        {"train.lr": rounded_lr},
    )
    assert rounded_lr != candidate.job.train.lr


def test_a_setting_is_confirmed_once_the_seeds_that_are_still_asked_for_are_complete(world, job):
    def confirmed(seeds):
        report = world.run(world.plan(job, f"{LR}\nsearch: {{scheduler: none}}", trials=1, seeds=seeds))
        (confirmation,) = report.confirmations
        points = world.everything()["logs"][f"SWEEP.{confirmation.key}"]["points"]
        return confirmation.state, {
            name: value for name, value in points.items() if name.startswith("val/accuracy")
        }

    world.stop_when(lambda trial_job, _epoch: trial_job.train.seed == 2)
    assert confirmed(3) == (State.STOPPED, {})
    scores = [world.formula.score(load_job(dump_job(job), {"train.seed": n}), 4) for n in (1, 2, 3)]
    assert confirmed(1) == (State.COMPLETE, {"val/accuracy 1": scores[0]})
    state, points = confirmed(3)
    assert (state, points["val/accuracy 3"]) == (State.COMPLETE, pytest.approx(fmean(scores)))


def test_with_several_goals_the_best_of_the_front(plan):
    search = own(plan("search: {metric: [val/accuracy, val/macro_f1], scheduler: none}", confirm=3))
    points = [[0.5, 0.5], [0.9, 0.1], [0.4, 0.4], [0.1, 0.9]]
    trials = [trained(search.plan, n, 0.02 + n / 100, p[0], p) for n, p in enumerate(points)]
    candidate_labels = labels(confirmed_candidates(search, trials))[1:]
    assert not search.races
    assert candidate_labels == ["best found (trial 1)", "no. 2 found (trial 0)", "no. 3 found (trial 3)"]


def test_a_training_has_the_blocks_of_every_goal(tiny, tmp_path):
    tags_job = tiny_job(tiny, *TAGS, epochs=1)
    run_experiment(JobData.of(tags_job, tmp_path), folder=tmp_path, context=ONE_PROCESS, listener=[].append)
    text = f"{LR}\nsearch: {{metric: [val/micro_f1, val/hamming_loss], scheduler: none}}"
    (tmp_path / "space.yaml").write_text(text)
    plan = SweepPlan(tags_job, load_space(tmp_path / "space.yaml", tags_job), text, "sweep", trials=1)
    end = score_training(plan, trained(plan, 0, 0.01, 0.5), tmp_path, [0.5, 0.5])
    assert len(end.blocks["test/hamming_loss"]) == len(end.blocks["test/micro_f1"]) > 1
    assert "test/map" in end.blocks
    assert "knn/test/hamming_loss" not in end.blocks


def test_an_arm_whose_other_trials_were_pruned_was_searched(world, tiny):
    job = tiny_job(tiny, "objective.heads.detail.temperature=0.2", "objective.heads.topic.temperature=0.2")
    text = "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}\nsearch: {scheduler: asha}"
    report = world.run(world.plan(job, text, trials=4, seeds=3, searches=1))
    assert [trial.state for trial in report.trials] == [State.COMPLETE, *[State.PRUNED] * 3]
    (search,) = report.arms[0].searches
    assert (search.trials, search.tried, report.given_arms) == (1, 4, frozenset())
    old_arm = replace(report.arms[0], searches=(replace(search, tried=0),))  # as an earlier release wrote it
    assert replace(report, arms=(old_arm,)).given_arms == {report.arms[0].name}
    single_trial_report = world.run(world.plan(job, text, trials=1, seeds=3, searches=1, name="one"))
    assert single_trial_report.given_arms == {single_trial_report.arms[0].name}


def test_trials_of_a_command_without_seeds_race_only_as_far_as_those_of_other_arms(world, job):
    def run(trials, seeds=3, **options):
        text = f"{LR}\nsearch: {{scheduler: none, sampler: random}}"
        plan = world.plan(
            job, text, trials=trials, seeds=seeds, searches=3, control=control_job(job), **options
        )
        plan_counts, report = plan_sweep(plan, world.home)["sweep"], world.run(plan)
        fresh_trainings = [
            training for training in world.ledger.entries.values() if training.confirmation is not None
        ]
        heads_arm = next(arm for arm in report.arms if arm.role == Role.MODEL)
        counts = [search.tried for arm in report.arms for search in arm.searches]
        return (
            counts,
            [entrant.name for entrant in heads_arm.searches[0].race],
            len(fresh_trainings),
            plan_counts,
        )

    world.formula.scale = lambda trial_job: 1 + trial_job.train.lr
    run(9, seeds=0)
    ranked_trials = sorted(world.ledger.trials(), key=lambda trial: -trial.score)
    first_label = next(trial.label for trial in ranked_trials if trial.number < 3)
    assert first_label != ranked_trials[0].label
    counts, race_names, fresh_count, plan_counts = run(9)
    assert (counts, race_names) == ([3] * 6, ["as written", first_label])
    assert fresh_count <= plan_counts["most_confirmation_runs"]
    setting = {"train.lr": 0.0999}
    assert run(9, try_first=[setting])[0][3:] == [4] * 3  # a requested setting adds one trial
    assert "trial 9" in run(9)[1]
    assert run(30)[0][3:] == [10] * 3
