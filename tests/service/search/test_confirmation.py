"""Tests of the choice of the best trials and of the settings that are trained again on fresh seeds."""

import itertools
import random
from dataclasses import replace
from statistics import fmean

import pytest
from builders import tiny_job
from stored_runs import TAGS

from mlcl.config import Goal, dump_job, load_job, load_space
from mlcl.results.sweep_result import pareto, ranked
from mlcl.service.engine.entries import Entry
from mlcl.service.search.arms import control_job, search_plans
from mlcl.service.search.confirmation import confirmed_candidates, entrants, picked
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
    assert [trial.number for trial in ranked(trials, "max")] == [1, 3, 0, 4]
    assert [trial.number for trial in ranked(trials, "min")] == [4, 0, 1, 3]
    assert ranked([entry(0, state=State.FAILED), entry(1, 0.3, State.STOPPED)], "max") == []


def test_the_front_has_what_no_other_beats():
    rng = random.Random(0)
    points = [[rng.randint(0, 5) / 5, rng.randint(0, 5) / 5] for _ in range(40)]
    trials = [entry(n, p[0], values=p) for n, p in enumerate(points)]
    trials.append(entry(99, 1.0, State.PRUNED))
    beaten = {
        a.number
        for a, b in itertools.permutations(trials[:40], 2)
        if b.values[0] >= a.values[0] and b.values[1] <= a.values[1] and b.values != a.values
    }
    front = [trial.number for trial in pareto(trials, UP_DOWN)]
    assert front == [number for number in range(40) if number not in beaten]
    assert pareto([], UP_DOWN) == []


@pytest.fixture
def plan(tiny, tmp_path):
    def make(search="", text=LR, **how):
        job = tiny_job(tiny)
        text = f"{text}\n{search}"
        (tmp_path / "space.yaml").write_text(text)
        space = load_space(tmp_path / "space.yaml", job)
        return SweepPlan(job, space, text, "sweep", trials=9, seeds=2, **how)

    return make


def trained(plan, number, lr, score, values=None):
    job = load_job(dump_job(plan.search_job()), {"train.lr": lr})
    return entry(number, score, values=values, job=dump_job(job), settings={"train.lr": lr})


def own(plan):
    return next(each for each in search_plans(plan) if each.role is Role.MODEL)


def labels(found):
    return [" = ".join(each.labels) for each in found]


def test_the_job_as_written_and_the_best_are_confirmed_without_a_race(plan):
    search = own(plan("search: {race_seeds: 0}", confirm=2))
    trials = [trained(search.plan, n, lr, score) for n, (lr, score) in enumerate([(0.02, 0.4), (0.03, 0.6)])]
    found = confirmed_candidates(search, trials)
    assert not search.races
    assert labels(found) == ["as written", "best found (trial 1)", "no. 2 found (trial 0)"]
    assert [dict(each.settings) for each in found] == [{}, {"train.lr": 0.03}, {"train.lr": 0.02}]
    assert len({each.key for each in found}) == 3
    assert confirmed_candidates(search, trials) == found


def test_at_most_a_third_of_the_trials_race(plan):
    search = own(plan(confirm=4))
    trials = [trained(search.plan, n, 0.01 * n, 0.1 * n) for n in range(1, 10)]
    raced = entrants(search, trials)
    assert search.races
    assert [each.name for each in raced] == ["as written", "trial 9", "trial 8", "trial 7"]
    assert [each.trial for each in raced] == ["", "trial 9", "trial 8", "trial 7"]
    assert {each.key.partition("-")[0] for each in raced} == {"race"}
    assert picked(raced[1], {}).key.startswith("confirm-")


def test_repeats_of_a_trial_of_another_search_count_once(plan):
    search = own(plan(confirm=4))
    trials = [trained(search.plan, n, 0.01 + n / 100, 0.1 * n) for n in (1, 2)]
    again = [replace(trained(search.plan, n, 0.05, 0.9), same_as="other-trial") for n in range(3, 7)]
    assert [each.name for each in entrants(search, [*trials, *again])] == ["as written", "trial 3"]
    raceless = own(plan("search: {race_seeds: 0}", confirm=2))
    found = confirmed_candidates(raceless, [*trials, *again])
    assert [each.name for each in found] == ["as written", "trial 3", "trial 2"]


def test_what_is_not_searched_is_confirmed_as_written(plan):
    fitted = ("tfidf_svm", baseline_job(tiny_job("d"), "tfidf_svm"))
    knn = "space: {train.lr: {log_float: [0.001, 0.1]}, evaluation.knn.k: {choice: [1, 3]}}"
    svm, mine = search_plans(plan(baselines=[fitted], text=knn))
    assert (svm.is_searched, mine.is_searched) == (False, True)
    (found,) = confirmed_candidates(svm, [])
    assert (found.name, found.labels, found.role) == ("tfidf_svm", ("tfidf_svm",), Role.BASELINE)
    assert found.job.evaluation.knn is None
    assert found.job.experiment == mine.plan.job.experiment


def test_a_trial_of_the_job_as_written_is_one_setting_under_both_names(plan):
    search = own(plan())
    # An earlier release drew the job as written with this rounding error.
    nearly = search.plan.job.train.lr * (1 + 1e-15)
    (found,) = entrants(search, [trained(search.plan, 4, nearly, 0.5)])
    assert labels([found]) == ["as written = best found (trial 4)"]
    assert (found.name, found.trial, found.settings) == ("as written", "trial 4", {"train.lr": nearly})
    assert nearly != found.job.train.lr


def test_a_setting_is_confirmed_once_the_seeds_that_are_still_asked_for_are_complete(world, job):
    def confirmed(seeds):
        report = world.run(world.plan(job, f"{LR}\nsearch: {{scheduler: none}}", trials=1, seeds=seeds))
        (found,) = report.confirmations
        points = world.everything()["logs"][f"SWEEP.{found.key}"]["points"]
        return found.state, {name: value for name, value in points.items() if name.startswith("val/accuracy")}

    world.stop_when(lambda its, _epoch: its.train.seed == 2)
    assert confirmed(3) == (State.STOPPED, {})
    scores = [world.formula.score(load_job(dump_job(job), {"train.seed": n}), 4) for n in (1, 2, 3)]
    assert confirmed(1) == (State.COMPLETE, {"val/accuracy 1": scores[0]})
    state, points = confirmed(3)
    assert (state, points["val/accuracy 3"]) == (State.COMPLETE, pytest.approx(fmean(scores)))


def test_with_several_goals_the_best_of_the_front(plan):
    search = own(plan("search: {metric: [val/accuracy, val/macro_f1], scheduler: none}", confirm=3))
    points = [[0.5, 0.5], [0.9, 0.1], [0.4, 0.4], [0.1, 0.9]]
    trials = [trained(search.plan, n, 0.02 + n / 100, p[0], p) for n, p in enumerate(points)]
    found = labels(confirmed_candidates(search, trials))[1:]
    assert not search.races
    assert found == ["best found (trial 1)", "no. 2 found (trial 0)", "no. 3 found (trial 3)"]


def test_a_training_has_the_blocks_of_every_goal(tiny, tmp_path):
    tags = tiny_job(tiny, *TAGS, epochs=1)
    run_experiment(JobData.of(tags, tmp_path), folder=tmp_path, context=ONE_PROCESS, listener=[].append)
    text = f"{LR}\nsearch: {{metric: [val/micro_f1, val/hamming_loss], scheduler: none}}"
    (tmp_path / "space.yaml").write_text(text)
    plan = SweepPlan(tags, load_space(tmp_path / "space.yaml", tags), text, "sweep", trials=1)
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
    earlier = replace(report.arms[0], searches=(replace(search, tried=0),))  # as an earlier release wrote it
    assert replace(report, arms=(earlier,)).given_arms == {report.arms[0].name}
    one = world.run(world.plan(job, text, trials=1, seeds=3, searches=1, name="one"))
    assert one.given_arms == {one.arms[0].name}


def test_trials_of_a_command_without_seeds_race_only_as_far_as_those_of_other_arms(world, job):
    def run(trials, seeds=3, **how):
        text = f"{LR}\nsearch: {{scheduler: none, sampler: random}}"
        plan = world.plan(job, text, trials=trials, seeds=seeds, searches=3, control=control_job(job), **how)
        planned, report = plan_sweep(plan, world.home)["sweep"], world.run(plan)
        fresh = [each for each in world.ledger.entries.values() if each.confirmation is not None]
        heads = next(arm for arm in report.arms if arm.role == Role.MODEL)
        counts = [search.tried for arm in report.arms for search in arm.searches]
        return counts, [each.name for each in heads.searches[0].race], len(fresh), planned

    world.formula.scale = lambda its: 1 + its.train.lr
    run(9, seeds=0)
    found = sorted(world.ledger.trials(), key=lambda trial: -trial.score)
    first = next(trial.label for trial in found if trial.number < 3)
    assert first != found[0].label
    counts, raced, fresh, planned = run(9)
    assert (counts, raced) == ([3] * 6, ["as written", first])
    assert fresh <= planned["most_confirmation_runs"]
    lr = {"train.lr": 0.0999}
    assert run(9, try_first=[lr])[0][3:] == [4] * 3  # a requested setting adds one trial
    assert "trial 9" in run(9)[1]
    assert run(30)[0][3:] == [10] * 3
