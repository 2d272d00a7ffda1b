"""What the ledger says is told to logs and studies, as often as one likes."""

import pytest
from builders import tiny_job
from mortal import Killed
from sweeps import World

from mlcl.service.engine.entries import Entry
from mlcl.service.engine.nested_trials import end_log, log_id
from mlcl.service.engine.recovery import KILLED, close_ledger
from mlcl.store import RunFolder
from mlcl.tracking import RunLog, State

SPACE = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none}"


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path / "home", monkeypatch)


@pytest.fixture
def log(world):
    return RunLog.start(
        world.home, log_id("s", "t"), uri="u", experiment="e", name="t", owner="s", params={}, tags={}
    )


def entry(state, **how):
    return Entry("t", "trial 0", {}, {"train.lr": 0.1}, number=0, state=state, **how)


def content(log):
    return (log.home / "logs" / log.id / "log.jsonl").read_text().splitlines()


@pytest.mark.parametrize("state", State)
def test_a_log_is_told_once(log, state):
    told = entry(state, score=0.5, reason="why" if state is State.FAILED else "")
    if state is State.COMPLETE:
        told.chosen = {"evaluation.knn.k": 3, "evaluation.knn.temperature": 0.1}
    end_log(log, told)
    once = content(log)
    end_log(RunLog.attach(log.home, log.id), told)
    assert content(log) == once
    assert (log.state, log.reason) == (state, told.reason)
    assert ('"score"' in "".join(once)) == told.ended
    if state is State.COMPLETE:
        assert '"evaluation.knn.k":"3"' in "".join(once)
        assert '"log10.tau":"-1"' in "".join(once)


def test_a_reason_does_not_outlive_its_state(log):
    end_log(log, entry(State.STOPPED, reason=KILLED))
    end_log(log, entry(State.RUNNING))
    assert (log.state, log.reason) == (State.STOPPED, KILLED)  # its own process says that it runs
    end_log(log, entry(State.PRUNED, score=0.5))
    assert (log.state, log.reason) == (State.PRUNED, "")
    assert [line.partition(",")[0] for line in content(log)][-3:] == [
        '{"kind":"metrics"', '{"kind":"tags"', '{"kind":"state"'
    ]  # fmt: skip


def test_closing_a_killed_sweep_twice_is_closing_it_once(world, tiny):
    world.kill_when(lambda _job, epoch: len(world.ledger.trials()) == 2 and epoch == 2)
    assert world.killed(world.plan(tiny_job(tiny), SPACE))
    folder = RunFolder(world.folder)
    for _ in range(2):
        close_ledger(world.home, folder)
        entry = world.ledger.entries["trial-0001"]
        assert (entry.state, entry.reason) == (State.STOPPED, KILLED)
        assert world.ledger.entries["trial-0000"].state is State.COMPLETE
        assert world.ledger.state is State.STOPPED
        log = RunLog.attach(world.home, log_id(world.folder.name, "trial-0001"))
        assert (log.state, log.reason) == (State.STOPPED, KILLED)


def test_a_training_whose_log_was_never_started_is_closed_all_the_same(world, tiny, monkeypatch):
    def die(*_, **__):
        world.mortal.dead = True
        raise Killed

    plan = world.plan(tiny_job(tiny), SPACE)
    with monkeypatch.context() as patch:
        patch.setattr("mlcl.service.engine.nested_trials.NestedTrials.open", die)
        assert world.killed(plan)
    folder = RunFolder(world.folder)
    close_ledger(world.home, folder)
    assert world.ledger.entries["trial-0000"].state is State.STOPPED
    assert world.run(plan).state is State.COMPLETE
