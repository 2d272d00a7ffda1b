"""What killed processes left RUNNING: closed from files alone."""

import pytest
from ledgers import recorded

from mlcl.service.engine.entries import End
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.recovery import KILLED, recover
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State


def left(home, kind="runs", state=State.RUNNING, log_state=None):
    """A run with its log, as a killed process leaves it."""
    folder = RunFolders(home, kind).new()
    id = folder.path.name
    recorded(folder, state)
    start(home, id, id).set_state(log_state or state)
    return folder


def start(home, id, owner):
    return RunLog.start(
        home, id, uri="sqlite:///x.db", experiment="exp", name=id, owner=owner, params={}, tags={}
    )


def in_log(home, id):
    """State and reason that MLflow is sent."""
    log = RunLog.attach(home, id)
    return log.state, log.reason


def opened(folder, *keys, event="sweep"):
    """The folder's ledger, with trainings that run."""
    ledger = Ledger(folder.path)
    ledger.append(event, id=folder.path.name)
    for key in keys:
        job = {"job": {}, "settings": {}, "generation": 0, "number": None, "params": {}, "system_attrs": {}}
        ledger.append("open", key=key, label=key, group=None, **job)
        ledger.append("begin", key=key, cpus=1, gpus=0)
    return ledger


@pytest.mark.parametrize("log_state", [State.RUNNING, State.COMPLETE])
def test_a_killed_run_is_stopped_whatever_its_log_says(tmp_path, log_state):
    folder = left(tmp_path, log_state=log_state)
    recover(tmp_path)
    assert folder.record.state is State.STOPPED
    assert in_log(tmp_path, folder.path.name) == (State.STOPPED, KILLED)


def test_a_run_that_was_killed_before_it_had_a_log_is_stopped(tmp_path):
    folder = RunFolders(tmp_path).new()
    recorded(folder, log="none")
    recover(tmp_path)
    assert folder.record.state is State.STOPPED


@pytest.mark.parametrize("kind", ["runs", "sweeps", "tables"])
def test_what_lives_or_has_ended_is_left_alone(tmp_path, kind):
    living, ended = left(tmp_path, kind), left(tmp_path, kind, State.COMPLETE)
    with living.owned():
        recover(tmp_path)
    assert living.record.state is in_log(tmp_path, living.path.name)[0] is State.RUNNING
    assert ended.record.state is State.COMPLETE


def test_a_killed_sweeps_trials_are_closed_as_its_ledger_says(tmp_path):
    folder = left(tmp_path, "sweeps")
    id = folder.path.name
    ledger = opened(folder, "ended", "running")
    for log in (f"{id}.ended", f"{id}.running", "other"):
        start(tmp_path, log, id)
    ledger.close("ended", End(State.PRUNED))
    recover(tmp_path)
    assert folder.record.state is Ledger(folder.path).state is State.STOPPED
    states = {"ended": (State.PRUNED, ""), "running": (State.STOPPED, KILLED)}
    assert {key: (each.state, each.reason) for key, each in Ledger(folder.path).entries.items()} == states
    assert {key: in_log(tmp_path, f"{id}.{key}") for key in states} == states
    assert [in_log(tmp_path, log)[0] for log in (id, "other")] == [State.STOPPED, State.RUNNING]


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_killed_tables_run_is_what_the_ledger_says(tmp_path, state):
    folder, ended, running = left(tmp_path, "tables"), left(tmp_path), left(tmp_path)
    ledger = opened(folder, ended.path.name, running.path.name, event="table")
    ledger.close(ended.path.name, End(state, "why"))
    recover(tmp_path)
    assert (ended.record.state, in_log(tmp_path, ended.path.name)) == (state, (state, "why"))
    assert running.record.state is Ledger(folder.path).entries[running.path.name].state is State.STOPPED


def test_a_run_that_another_command_has_is_not_closed_for_a_killed_table(tmp_path):
    folder, run = left(tmp_path, "tables"), left(tmp_path)
    opened(folder, run.path.name, event="table").close(run.path.name, End(State.FAILED))
    with run.owned():
        recover(tmp_path)
    assert run.record.state is in_log(tmp_path, run.path.name)[0] is State.RUNNING
