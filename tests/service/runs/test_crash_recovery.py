"""What killed processes left RUNNING: closed from files alone."""

import pytest

from mlcl.errors import UserError
from mlcl.service.runs.crash_recovery import KILLED, close_orphans
from mlcl.service.runs.run_store import RunFolders, RunRecord
from mlcl.tracking import RunLog, State


def left(home, kind="runs", log_state=None, state=State.RUNNING):
    """A run with its log, as a killed process leaves it."""
    folder = RunFolders(home, kind).new()
    id = folder.path.name
    folder.write(RunRecord(id, "exp", "j", "d", state, id, "uri", "now"))
    log = start(home, id, id)
    if log_state is not None:
        log.finish(log_state)
    return folder, log


def start(home, id, owner):
    return RunLog.start(
        home, id, uri="sqlite:///x.db", experiment="exp", name=id, owner=owner, params={}, tags={}
    )


def test_a_killed_run_is_stopped_in_record_and_log(tmp_path):
    folder, log = left(tmp_path)
    close_orphans(tmp_path)
    assert folder.record.state is State.STOPPED
    assert (log.state, log.reason) == (State.STOPPED, KILLED)


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_kill_between_the_two_ends_leaves_what_the_log_says(tmp_path, state):
    folder, log = left(tmp_path, log_state=state)
    close_orphans(tmp_path)
    assert folder.record.state is log.state is state


def test_a_run_that_was_killed_before_it_had_a_log_is_stopped(tmp_path):
    folder = RunFolders(tmp_path).new()
    folder.write(RunRecord(folder.path.name, "exp", "j", "d", State.RUNNING, "none", "uri", "now"))
    close_orphans(tmp_path)
    assert folder.record.state is State.STOPPED


def test_what_lives_or_has_ended_is_left_alone(tmp_path):
    living, log = left(tmp_path)
    ended, _ = left(tmp_path, state=State.COMPLETE, log_state=State.COMPLETE)
    with living.owned():
        close_orphans(tmp_path)
    assert living.record.state is log.state is State.RUNNING
    assert ended.record.state is State.COMPLETE


def test_a_killed_sweep_is_closed_by_who_knows_its_trials(tmp_path):
    folder, sweep = left(tmp_path, "sweeps")
    id = folder.path.name
    told, silent = start(tmp_path, f"{id}.told", id), start(tmp_path, f"{id}.silent", id)
    other = start(tmp_path, "other", "other")
    close_orphans(tmp_path)
    assert folder.record.state is State.RUNNING

    def close(found, record):
        assert (found.path, record.id) == (folder.path, id)
        with folder.owned() as mine:
            assert not mine  # it is held meanwhile
        told.finish(State.PRUNED)

    close_orphans(tmp_path, close)
    assert folder.record.state is State.STOPPED
    assert [log.state for log in (sweep, told, silent, other)] == [
        State.STOPPED, State.PRUNED, State.STOPPED, State.RUNNING
    ]  # fmt: skip


def test_a_damaged_sweep_keeps_nobody_else_from_being_closed(tmp_path):
    damaged, _ = left(tmp_path, kind="sweeps")
    other, _ = left(tmp_path, kind="sweeps")

    def close(folder, _record):
        if folder.path == damaged.path:
            raise UserError("the ledger of a sweep is damaged")

    close_orphans(tmp_path, close)
    assert damaged.record.state is State.RUNNING
    assert other.record.state is State.STOPPED
