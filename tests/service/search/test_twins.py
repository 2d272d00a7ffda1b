"""Tests that a setting which is drawn again is not trained again but takes the first trial's results."""

import pytest
from builders import tiny_job
from optuna.trial import TrialState
from sweeps import World

from mlcl.tracking import State

SMALL = """
space: {train.optimizer: {choice: [adamw, sgd]}, encoder.width: {choice: [8, 16]}}
search: {sampler: SAMPLER, scheduler: SCHEDULER, startup: 2, reduction_factor: 2}
"""
WIDE = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: SCHEDULER}"
SAME_ROWS = ("data.validation_seed=7",)
"""An override that gives all searches the same validation rows."""
LR = "space: {train.lr: {choice: [0.01, 0.02]}}\nsearch: {scheduler: none, startup: 2}"


def trained(world):
    return {key for key, _ in world.formula.trained}


def first_of(trials):
    """Returns the first trial of each setting, by its job."""
    first_trials = {}
    for trial in trials:
        first_trials.setdefault(str(trial.job), trial)
    return first_trials


@pytest.fixture
def plan(world, tiny):
    def of(trials=12, sampler="tpe", scheduler="none", text=SMALL, **options):
        text = text.replace("SAMPLER", sampler).replace("SCHEDULER", scheduler)
        return world.plan(tiny_job(tiny, *options.pop("overrides", ())), text, trials=trials, **options)

    return of


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp"])
@pytest.mark.parametrize("parallel", [1, 3])
def test_each_setting_is_trained_once_and_its_results_are_taken(world, plan, sampler, parallel):
    world.execute(at_once=parallel)
    report = world.run(plan(sampler=sampler, parallel=parallel))
    trials = world.ledger.trials()
    first_trials = first_of(trials)
    assert (report.state, len(trials), len(first_trials) <= 4) == (State.COMPLETE, 12, True)
    assert trained(world) == {trial.key for trial in first_trials.values()}
    repeats = [trial for trial in trials if trial.same_as]
    assert len(repeats) == 12 - len(first_trials)
    for trial in repeats:
        first_trial = first_trials[str(trial.job)]
        assert trial.same_as == first_trial.key
        assert (trial.state, trial.score, trial.metrics) == (
            State.COMPLETE,
            first_trial.score,
            first_trial.metrics,
        )
        assert trial.reason == f"has the values of {first_trial.label}, whose results it takes"
        log = world.everything()["logs"][f"SWEEP.{trial.key}"]
        assert log["end"] == ["COMPLETE", trial.reason]
        assert log["points"]["score 0"] == trial.score
    assert {trial.state for trial in world.study.trials} == {TrialState.COMPLETE}
    closed_labels = [event.row.label for event in world.events if event.kind == "close"]
    assert sorted(closed_labels) == sorted(trial.label for trial in trials)


def test_it_is_said(world, plan):
    world.run(plan())
    reasons = [event.row.reason for event in world.events if event.kind == "close" and event.row.reason]
    assert reasons
    assert all("whose results it takes" in reason for reason in reasons)


def test_a_pruned_one_counts_as_pruned(world, plan):
    world.formula.scale = lambda job: 1.0 if job.encoder.width == 8 else 0.5
    world.run(plan(20, scheduler="asha"))
    repeats = [trial for trial in world.ledger.trials() if trial.same_as]
    states = {trial.same_as: trial.state for trial in repeats}
    assert all(world.ledger.entries[key].state is state for key, state in states.items())
    assert State.PRUNED in states.values()
    assert trained(world) == {trial.key for trial in first_of(world.ledger.trials()).values()}


def test_trials_are_compared_at_a_rung_without_repeated_ones(world, plan):
    world.formula.scale = lambda job: 1.0 if job.encoder.width == 8 else 0.5
    world.run(plan(20, scheduler="asha"))
    trained_trials = [trial for trial in world.ledger.trials() if not trial.same_as]
    last_rung, logs = (
        min(max(dict(trial.intermediate)) for trial in trained_trials),
        world.everything()["logs"],
    )
    for trial in trained_trials:
        points = logs[f"SWEEP.{trial.key}"]["points"]
        assert points[f"rung/{last_rung}/accuracy 0"] == dict(trial.intermediate)[last_rung]
    assert len(trained_trials) < 20


def test_a_failed_one_is_trained_again(world, plan):
    world.formula.fails = lambda job, _epoch: job.train.lr == 0.02
    world.run(plan(6, text=LR))
    trials = world.ledger.trials()
    failed_trials = [trial for trial in trials if trial.job["train"]["lr"] == 0.02]
    assert {trial.state for trial in failed_trials} == {State.FAILED}
    assert {trial.key for trial in failed_trials} <= trained(world)
    assert not any(trial.same_as for trial in failed_trials)


@pytest.mark.parametrize("parallel", [1, 3])
def test_what_waits_for_one_that_is_stopped_goes_on_with_it(world, plan, parallel):
    world.execute(at_once=parallel)
    world.stop_when(lambda _job, epoch: (len(world.ledger.trials()) >= 3, epoch) == (True, 2))
    sweep_plan = plan(12, parallel=parallel)
    assert world.run(sweep_plan).state is State.STOPPED
    assert State.RUNNING not in {trial.state for trial in world.ledger.trials()}
    assert world.run(sweep_plan).state is State.COMPLETE
    trials = world.ledger.trials()
    assert {trial.state for trial in trials} == {State.COMPLETE}
    assert trained(world) == {trial.key for trial in first_of(trials).values()}


def test_killed_anywhere_it_is_the_unbroken_sweep(world, plan, tiny, monkeypatch):
    sweep_plan = plan(8, scheduler="asha")
    for point in range(3, 60, 8):
        world.killed(sweep_plan, point)
    world.run(sweep_plan)
    unbroken_world = World(world.home.parent / "whole", monkeypatch)
    text = SMALL.replace("SAMPLER", "tpe").replace("SCHEDULER", "asha")
    unbroken_world.run(unbroken_world.plan(tiny_job(tiny), text, trials=8))
    assert world.everything()["study"] == unbroken_world.everything()["study"]
    assert any(trial.same_as for trial in world.ledger.trials())


def test_it_takes_no_place_of_another_in_a_race(world, plan):
    several_widths = SMALL.replace("choice: [8, 16]", "choice: [8, 12, 16, 20, 24]")
    report = world.run(plan(40, seeds=2, confirm=4, text=several_widths))
    (arm,) = report.arms
    names = [entrant.name for entrant in arm.searches[0].race]
    labels = {trial.label for trial in first_of(world.ledger.trials()).values()}
    assert len(names) == len(set(names)) >= 2
    assert set(names) <= labels | {"as written"}
    assert report.registered or report.state is State.COMPLETE


def written(ledger):
    """Returns the first trial of each search, which is the job as written."""
    return [ledger.trials(scope=scope)[0] for scope in ledger.searches]


@pytest.mark.parametrize("parallel", [1, 3])
def test_searches_on_the_same_rows_train_the_job_as_written_once(world, plan, parallel):
    world.execute(at_once=parallel)
    report = world.run(plan(18, text=WIDE, searches=3, seeds=6, parallel=parallel, overrides=SAME_ROWS))
    first_trial, *other_trials = written(world.ledger)
    assert [first_trial.same_as, *(trial.same_as for trial in other_trials)] == [
        "",
        first_trial.key,
        first_trial.key,
    ]
    assert {trial.score for trial in other_trials} == {first_trial.score}
    assert not trained(world) & {trial.key for trial in other_trials}
    # The job as written is the best trial of each search, whether or not it was trained there.
    (arm,) = report.arms
    assert [search.pick for search in arm.searches] == [
        "as written",
        "search 2, as written",
        "search 3, as written",
    ]
    assert not any(search.race for search in arm.searches)


@pytest.mark.parametrize("apart", ["rows", "pruner"])
def test_searches_on_rows_of_their_own_or_that_prune_train_it_each(world, plan, apart):
    options = {"scheduler": "asha", "overrides": SAME_ROWS} if apart == "pruner" else {}
    world.run(plan(9, text=WIDE, searches=3, seeds=6, **options))
    assert [trial.same_as for trial in written(world.ledger)] == [""] * 3


def test_searches_that_share_a_training_are_killed_anywhere_and_end_equal(world, plan, tiny, monkeypatch):
    sweep_plan = plan(9, text=WIDE, searches=3, seeds=3, overrides=SAME_ROWS)
    for point in range(3, 90, 12):
        world.killed(sweep_plan, point)
    world.run(sweep_plan)
    unbroken_world = World(world.home.parent / "whole", monkeypatch)
    text = WIDE.replace("SCHEDULER", "none")
    unbroken_world.run(unbroken_world.plan(tiny_job(tiny, *SAME_ROWS), text, trials=9, searches=3, seeds=3))
    assert world.everything()["study"] == unbroken_world.everything()["study"]
    assert [trial.same_as for trial in written(world.ledger)] == [
        trial.same_as for trial in written(unbroken_world.ledger)
    ]
