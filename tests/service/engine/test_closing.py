"""Tests that the end of a training is written once, by its command or, after a kill, by another one."""

import pytest
from builders import tiny_job
from ledgers import recorded
from mortal import Killed
from sweep_contents import logged
from sweeps import World

from mlcl.service.engine.closing import KILLED, close_ledger, end_confirmation_log, recover, write_end
from mlcl.service.engine.entries import Confirmation, End, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import RunLog, State
from mlcl.tracking.log import LOG, log_folder

SPACE = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none}"


def left(home, kind="runs", state=State.RUNNING, log_state=None):
    """Creates a run with its log as a killed process leaves them, and returns its folder."""
    folder = RunFolders(home, kind).new_folder()
    id = folder.path.name
    recorded(folder, state)
    start(home, id, id).set_state(log_state or state)
    return folder


def start(home, id, owner):
    return RunLog.start(
        home, id, uri="sqlite:///x.db", experiment="exp", name=id, owner=owner, params={}, tags={}
    )


def in_log(home, id):
    """Returns the state and the reason that the log sends to MLflow."""
    log = RunLog.attach(home, id)
    return log.state, log.reason


def with_trainings(folder, *keys, event="sweep"):
    """Returns the folder's ledger, in which the given trainings are running."""
    ledger = Ledger(folder.path)
    ledger.append(event, id=folder.path.name)
    for key in keys:
        ledger.open(Training(key, key, {}, {}))
        ledger.append("begin", key=key, cpus=1, gpus=0)
    return ledger


@pytest.mark.parametrize("state", State)
def test_an_end_is_written_once(tmp_path, state):
    folder = left(tmp_path, "sweeps")
    ledger, log = with_trainings(folder, "t"), start(tmp_path, "log", "s")
    knn_settings = (
        {"evaluation.knn.k": 3, "evaluation.knn.temperature": 0.1} if state is State.COMPLETE else {}
    )
    end = End(state, "why" if state is State.FAILED else "", score=0.5, chosen=knn_settings)
    write_end(end, log, folder.path, ledger=ledger, key="t")
    log_text = (log_folder(tmp_path, "log") / LOG).read_text()
    entry = ledger.entries["t"]
    write_end(entry.last_end, RunLog.attach(tmp_path, "log"), folder.path, ledger=ledger, key="t")
    assert (log_folder(tmp_path, "log") / LOG).read_text() == log_text
    assert (log.state, log.reason) == (entry.state, entry.reason) == (state, end.reason)
    assert ('"score"' in log_text) == entry.ended
    assert ('"evaluation.knn.k":"3"' in log_text, '"log10.tau":"-1"' in log_text) == (
        bool(knn_settings),
        bool(knn_settings),
    )


def test_a_confirmation_has_the_means_of_its_complete_seeds(tmp_path):
    ledger, log = with_trainings(left(tmp_path, "sweeps")), start(tmp_path, "log", "s")
    ledger.open_confirmation(Confirmation("g", "g", {}, {}))
    ends = [End(State.COMPLETE, metrics={"a": 0.25}), End(State.COMPLETE, metrics={"a": 0.75})]
    for number, end in enumerate([*ends, End(State.STOPPED)]):
        ledger.open(Training(f"g-seed{number}", "", {}, {}, confirmation="g"))
        ledger.close(f"g-seed{number}", end)
    ledger.append("close_confirmation", key="g", state=State.COMPLETE, reason="")
    end_confirmation_log(log, ledger, "g")
    assert (logged(log_folder(tmp_path, "log"))["points"], log.state) == ({"a 2": 0.5}, State.COMPLETE)


def test_a_reason_does_not_outlive_its_state(tmp_path):
    folder = left(tmp_path, "sweeps")
    ledger, log = with_trainings(folder, "t"), start(tmp_path, "log", "s")
    write_end(End(State.STOPPED, KILLED), log, folder.path, ledger=ledger, key="t")
    ledger.append("begin", key="t", cpus=1, gpus=0)
    write_end(ledger.entries["t"].last_end, log, folder.path, ledger=ledger, key="t")
    assert (log.state, log.reason) == (State.STOPPED, KILLED)  # its process sets RUNNING
    write_end(End(State.PRUNED, score=0.5), log, folder.path, ledger=ledger, key="t")
    assert (log.state, log.reason) == (State.PRUNED, "")
    lines = (log_folder(tmp_path, "log") / LOG).read_text().splitlines()
    assert [line.partition(",")[0] for line in lines][-3:] == [
        '{"kind":"metrics"', '{"kind":"tags"', '{"kind":"state"'
    ]  # fmt: skip


@pytest.mark.parametrize("log_state", [State.RUNNING, State.COMPLETE])
def test_a_killed_run_is_stopped_whatever_its_log_says(tmp_path, log_state):
    folder, logless_folder = left(tmp_path, log_state=log_state), RunFolders(tmp_path).new_folder()
    recorded(logless_folder, log="none")
    recover(tmp_path)
    assert folder.record.state is logless_folder.record.state is State.STOPPED
    assert in_log(tmp_path, folder.path.name) == (State.STOPPED, KILLED)


@pytest.mark.parametrize("kind", ["runs", "sweeps", "tables"])
def test_what_lives_or_has_ended_is_left_alone(tmp_path, kind):
    locked_folder, ended_folder = left(tmp_path, kind), left(tmp_path, kind, State.COMPLETE)
    with locked_folder.try_lock():
        recover(tmp_path)
    assert locked_folder.record.state is in_log(tmp_path, locked_folder.path.name)[0] is State.RUNNING
    assert ended_folder.record.state is State.COMPLETE


def test_a_killed_sweeps_trials_are_closed_as_its_ledger_says(tmp_path):
    folder = left(tmp_path, "sweeps")
    id = folder.path.name
    ledger = with_trainings(folder, "ended", "running")
    for log in (f"{id}.ended", f"{id}.running", "other"):
        start(tmp_path, log, id)
    ledger.close("ended", End(State.PRUNED))
    recover(tmp_path)
    assert folder.record.state is Ledger(folder.path).state is State.STOPPED
    states = {"ended": (State.PRUNED, ""), "running": (State.STOPPED, KILLED)}
    assert {key: (entry.state, entry.reason) for key, entry in Ledger(folder.path).entries.items()} == states
    assert {key: in_log(tmp_path, f"{id}.{key}") for key in states} == states
    assert [in_log(tmp_path, log)[0] for log in (id, "other")] == [State.STOPPED, State.RUNNING]


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED])
def test_a_killed_tables_run_is_what_the_ledger_says(tmp_path, state):
    folder, ended_run, running_run = left(tmp_path, "tables"), left(tmp_path), left(tmp_path)
    ledger = with_trainings(folder, ended_run.path.name, running_run.path.name, event="table")
    ledger.close(ended_run.path.name, End(state, "why"))
    recover(tmp_path)
    assert (ended_run.record.state, in_log(tmp_path, ended_run.path.name)) == (state, (state, "why"))
    assert (
        running_run.record.state is Ledger(folder.path).entries[running_run.path.name].state is State.STOPPED
    )


def test_a_run_that_another_command_has_is_not_closed_for_a_killed_table(tmp_path):
    folder, run = left(tmp_path, "tables"), left(tmp_path)
    with_trainings(folder, run.path.name, event="table").close(run.path.name, End(State.FAILED))
    with run.try_lock():
        recover(tmp_path)
    assert run.record.state is in_log(tmp_path, run.path.name)[0] is State.RUNNING


def test_a_training_whose_log_was_never_started_is_closed_twice_as_once(tmp_path, tiny, monkeypatch):
    world = World(tmp_path / "home", monkeypatch)

    def die(*_, **__):
        world.mortal.dead = True
        raise Killed

    plan = world.plan(tiny_job(tiny), SPACE)
    with monkeypatch.context() as patch:
        patch.setattr("mlcl.service.engine.nested_trials.NestedTrials.open", die)
        assert world.killed(plan)
    for _ in range(2):
        close_ledger(world.home, RunFolder(world.folder))
        entry = world.ledger.entries["trial-0000"]
        assert (entry.state, entry.reason, world.ledger.state) == (State.STOPPED, KILLED, State.STOPPED)
    assert world.run(plan).state is State.COMPLETE


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_a_damaged_result_does_not_keep_a_killed_sweep_running(tmp_path, text):
    folder = left(tmp_path, "sweeps")
    (folder.path / "sweep.json").write_text(text)
    recover(tmp_path)
    assert folder.record.state is State.STOPPED
    assert (folder.path / "sweep.json").read_text() == text
