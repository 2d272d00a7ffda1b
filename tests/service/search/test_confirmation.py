"""The choice of the best trials, and of the settings that are trained again."""

import itertools
import random
from dataclasses import replace

import pytest
from builders import tiny_job

from mlcl.config import Goal, dump_job, load_job, load_space
from mlcl.results.sweep_result import pareto, ranked
from mlcl.service.engine.entries import Entry
from mlcl.service.search.confirmation import candidates
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.baseline_verdict import Role
from mlcl.tracking import State
from mlcl.training.baselines.jobs import baseline_job

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


def test_baselines_the_job_as_written_and_the_best(plan):
    plan = plan(confirm=2, baselines=[("plain", tiny_job("d", "objective.heads={}"))])
    trials = [trained(plan, n, lr, score) for n, (lr, score) in enumerate([(0.02, 0.4), (0.03, 0.6)])]
    found = candidates(plan, trials)
    labels = ["plain", "as written", "best found (trial 1)", "no. 2 found (trial 0)"]
    assert [" = ".join(each.labels) for each in found] == labels
    assert [dict(each.settings) for each in found] == [{}, {}, {"train.lr": 0.03}, {"train.lr": 0.02}]
    assert len({each.key for each in found}) == 4
    assert candidates(plan, trials) == found


def test_fitted_baselines_come_last_and_have_no_neighbours(plan):
    knn = "space: {train.lr: {log_float: [0.001, 0.1]}, evaluation.knn.k: {choice: [1, 3]}}"
    fitted = [("tfidf_svm", baseline_job(tiny_job("d"), "tfidf_svm"))]
    plan = plan(baselines=[*fitted, ("plain", tiny_job("d", "objective.heads={}"))], text=knn)
    found = candidates(plan, [trained(plan, 0, 0.02, 0.4)])
    assert [(" = ".join(each.labels), each.role) for each in found] == [
        ("plain", Role.BASELINE), ("as written", Role.MODEL), ("best found (trial 0)", Role.MODEL),
        ("tfidf_svm", Role.BASELINE),
    ]  # fmt: skip
    assert found[-1].job.evaluation.knn is None
    assert found[-1].job.experiment == plan.job.experiment
    assert found[0].job.evaluation.knn.grid.k == (1, 3)


def test_equal_jobs_are_one_under_all_their_names(plan):
    plan = replace(plan(), baselines=[("twin", plan().job)])
    nearly = plan.job.train.lr * (1 + 1e-15)  # as an earlier release drew the job as written
    (found,) = candidates(plan, [trained(plan, 4, nearly, 0.5)])
    assert " = ".join(found.labels) == "twin = as written = best found (trial 4)"
    assert found.settings == {"train.lr": nearly}
    assert nearly != found.job.train.lr
    assert found.role == Role.MODEL | Role.BASELINE


def test_with_several_goals_the_best_of_the_front(plan):
    plan = plan("search: {metric: [val/accuracy, val/macro_f1], scheduler: none}", confirm=3)
    points = [[0.5, 0.5], [0.9, 0.1], [0.4, 0.4], [0.1, 0.9]]
    trials = [trained(plan, n, 0.02 + n / 100, p[0], p) for n, p in enumerate(points)]
    found = [label for each in candidates(plan, trials) for label in each.labels][1:]
    assert found == ["best found (trial 1)", "no. 2 found (trial 0)", "no. 3 found (trial 3)"]
