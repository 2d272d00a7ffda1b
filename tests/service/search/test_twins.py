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
    found = {}
    for trial in trials:
        found.setdefault(str(trial.job), trial)
    return found


@pytest.fixture
def plan(world, tiny):
    def of(trials=12, sampler="tpe", scheduler="none", text=SMALL, **how):
        text = text.replace("SAMPLER", sampler).replace("SCHEDULER", scheduler)
        return world.plan(tiny_job(tiny, *how.pop("overrides", ())), text, trials=trials, **how)

    return of


@pytest.mark.parametrize("sampler", ["tpe", "random", "gp"])
@pytest.mark.parametrize("parallel", [1, 3])
def test_each_setting_is_trained_once_and_its_results_are_taken(world, plan, sampler, parallel):
    world.execute(at_once=parallel)
    report = world.run(plan(sampler=sampler, parallel=parallel))
    trials = world.ledger.trials()
    firsts = first_of(trials)
    assert (report.state, len(trials), len(firsts) <= 4) == (State.COMPLETE, 12, True)
    assert trained(world) == {trial.key for trial in firsts.values()}
    again = [trial for trial in trials if trial.same_as]
    assert len(again) == 12 - len(firsts)
    for trial in again:
        first = firsts[str(trial.job)]
        assert trial.same_as == first.key
        assert (trial.state, trial.score, trial.metrics) == (State.COMPLETE, first.score, first.metrics)
        assert trial.reason == f"has the values of {first.label}, whose results it takes"
        log = world.everything()["logs"][f"SWEEP.{trial.key}"]
        assert log["end"] == ["COMPLETE", trial.reason]
        assert log["points"]["score 0"] == trial.score
    assert {trial.state for trial in world.study.trials} == {TrialState.COMPLETE}
    closed = [event.row.label for event in world.events if event.kind == "close"]
    assert sorted(closed) == sorted(trial.label for trial in trials)


def test_it_is_said(world, plan):
    world.run(plan())
    said = [event.row.reason for event in world.events if event.kind == "close" and event.row.reason]
    assert said
    assert all("whose results it takes" in reason for reason in said)


def test_a_pruned_one_counts_as_pruned(world, plan):
    world.formula.scale = lambda job: 1.0 if job.encoder.width == 8 else 0.5
    world.run(plan(20, scheduler="asha"))
    again = [trial for trial in world.ledger.trials() if trial.same_as]
    states = {trial.same_as: trial.state for trial in again}
    assert all(world.ledger.entries[key].state is state for key, state in states.items())
    assert State.PRUNED in states.values()
    assert trained(world) == {trial.key for trial in first_of(world.ledger.trials()).values()}


def test_trials_are_compared_at_a_rung_without_repeated_ones(world, plan):
    world.formula.scale = lambda job: 1.0 if job.encoder.width == 8 else 0.5
    world.run(plan(20, scheduler="asha"))
    own = [trial for trial in world.ledger.trials() if not trial.same_as]
    last, logs = min(max(dict(trial.intermediate)) for trial in own), world.everything()["logs"]
    for trial in own:
        points = logs[f"SWEEP.{trial.key}"]["points"]
        assert points[f"rung/{last}/accuracy 0"] == dict(trial.intermediate)[last]
    assert len(own) < 20


def test_a_failed_one_is_trained_again(world, plan):
    world.formula.fails = lambda job, _epoch: job.train.lr == 0.02
    world.run(plan(6, text=LR))
    trials = world.ledger.trials()
    failed = [trial for trial in trials if trial.job["train"]["lr"] == 0.02]
    assert {trial.state for trial in failed} == {State.FAILED}
    assert {trial.key for trial in failed} <= trained(world)
    assert not any(trial.same_as for trial in failed)


@pytest.mark.parametrize("parallel", [1, 3])
def test_what_waits_for_one_that_is_stopped_goes_on_with_it(world, plan, parallel):
    world.execute(at_once=parallel)
    world.stop_when(lambda _job, epoch: (len(world.ledger.trials()) >= 3, epoch) == (True, 2))
    its = plan(12, parallel=parallel)
    assert world.run(its).state is State.STOPPED
    assert State.RUNNING not in {trial.state for trial in world.ledger.trials()}
    assert world.run(its).state is State.COMPLETE
    trials = world.ledger.trials()
    assert {trial.state for trial in trials} == {State.COMPLETE}
    assert trained(world) == {trial.key for trial in first_of(trials).values()}


def test_killed_anywhere_it_is_the_unbroken_sweep(world, plan, tiny, monkeypatch):
    its = plan(8, scheduler="asha")
    for at in range(3, 60, 8):
        world.killed(its, at)
    world.run(its)
    whole = World(world.home.parent / "whole", monkeypatch)
    text = SMALL.replace("SAMPLER", "tpe").replace("SCHEDULER", "asha")
    whole.run(whole.plan(tiny_job(tiny), text, trials=8))
    assert world.everything()["study"] == whole.everything()["study"]
    assert any(trial.same_as for trial in world.ledger.trials())


def test_it_takes_no_place_of_another_in_a_race(world, plan):
    several = SMALL.replace("choice: [8, 16]", "choice: [8, 12, 16, 20, 24]")
    report = world.run(plan(40, seeds=2, confirm=4, text=several))
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
    first, *others = written(world.ledger)
    assert [first.same_as, *(its.same_as for its in others)] == ["", first.key, first.key]
    assert {its.score for its in others} == {first.score}
    assert not trained(world) & {its.key for its in others}
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
    how = {"scheduler": "asha", "overrides": SAME_ROWS} if apart == "pruner" else {}
    world.run(plan(9, text=WIDE, searches=3, seeds=6, **how))
    assert [trial.same_as for trial in written(world.ledger)] == [""] * 3


def test_searches_that_share_a_training_are_killed_anywhere_and_end_equal(world, plan, tiny, monkeypatch):
    its = plan(9, text=WIDE, searches=3, seeds=3, overrides=SAME_ROWS)
    for at in range(3, 90, 12):
        world.killed(its, at)
    world.run(its)
    whole = World(world.home.parent / "whole", monkeypatch)
    text = WIDE.replace("SCHEDULER", "none")
    whole.run(whole.plan(tiny_job(tiny, *SAME_ROWS), text, trials=9, searches=3, seeds=3))
    assert world.everything()["study"] == whole.everything()["study"]
    assert [its.same_as for its in written(world.ledger)] == [its.same_as for its in written(whole.ledger)]
