"""What killed processes left RUNNING: closed from files alone."""

import pytest
from ledgers import recorded

from mlcl.service.engine.entries import End
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.recovery import KILLED, recover
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State


def left(home, kind="runs", log_state=None, state=State.RUNNING):
    """A run with its log, as a killed process leaves it."""
    folder = RunFolders(home, kind).new()
    id = folder.path.name
    recorded(folder, state)
    log = start(home, id, id)
    if log_state is not None:
        log.finish(log_state)
    return folder, log


def start(home, id, owner):
    return RunLog.start(
        home, id, uri="sqlite:///x.db", experiment="exp", name=id, owner=owner, params={}, tags={}
    )


def opened(folder, *keys, event="sweep"):
    """The folder's ledger, with trainings that run."""
    ledger = Ledger(folder.path)
    ledger.append(event, id=folder.path.name)
    for key in keys:
        job = {"job": {}, "settings": {}, "generation": 0, "number": None, "params": {}, "system_attrs": {}}
        ledger.append("open", key=key, label=key, group=None, **job)
        ledger.append("begin", key=key, cpus=1, gpus=0)
    return ledger


def test_a_killed_run_is_stopped_in_record_and_log(tmp_path):
    folder, log = left(tmp_path)
    recover(tmp_path)
    assert folder.record.state is State.STOPPED
    assert (log.state, log.reason) == (State.STOPPED, KILLED)


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_kill_between_the_two_ends_leaves_what_the_log_says(tmp_path, state):
    folder, log = left(tmp_path, log_state=state)
    recover(tmp_path)
    assert folder.record.state is log.state is state


def test_a_run_that_was_killed_before_it_had_a_log_is_stopped(tmp_path):
    folder = RunFolders(tmp_path).new()
    recorded(folder, log="none")
    recover(tmp_path)
    assert folder.record.state is State.STOPPED


@pytest.mark.parametrize("kind", ["runs", "sweeps", "tables"])
def test_what_lives_or_has_ended_is_left_alone(tmp_path, kind):
    living, log = left(tmp_path, kind)
    ended, _ = left(tmp_path, kind, state=State.COMPLETE, log_state=State.COMPLETE)
    with living.owned():
        recover(tmp_path)
    assert living.record.state is log.state is State.RUNNING
    assert ended.record.state is State.COMPLETE


def test_a_killed_sweeps_trials_are_closed_as_its_ledger_says(tmp_path):
    folder, sweep = left(tmp_path, "sweeps")
    id = folder.path.name
    ledger = opened(folder, "told", "silent")
    told, silent = start(tmp_path, f"{id}.told", id), start(tmp_path, f"{id}.silent", id)
    other = start(tmp_path, "other", "other")
    ledger.close("told", End(State.PRUNED))
    recover(tmp_path)
    assert folder.record.state is Ledger(folder.path).state is State.STOPPED
    assert [log.state for log in (sweep, told, silent, other)] == [
        State.STOPPED, State.PRUNED, State.STOPPED, State.RUNNING
    ]  # fmt: skip
    states = {key: (entry.state, entry.reason) for key, entry in Ledger(folder.path).entries.items()}
    assert states == {"told": (State.PRUNED, ""), "silent": (State.STOPPED, KILLED)}


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_killed_tables_run_is_what_the_ledger_says(tmp_path, state):
    folder, _ = left(tmp_path, "tables")
    (ended, log), (running, _) = left(tmp_path), left(tmp_path)
    ledger = opened(folder, ended.path.name, running.path.name, event="table")
    ledger.close(ended.path.name, End(state, "why"))
    recover(tmp_path)
    assert (ended.record.state, log.state, log.reason) == (state, state, "why")
    assert running.record.state is Ledger(folder.path).entries[running.path.name].state is State.STOPPED


def test_a_run_that_another_command_has_is_not_closed_for_a_killed_table(tmp_path):
    folder, _ = left(tmp_path, "tables")
    run, log = left(tmp_path)
    opened(folder, run.path.name, event="table").close(run.path.name, End(State.FAILED))
    with run.owned():
        recover(tmp_path)
    assert run.record.state is log.state is State.RUNNING
