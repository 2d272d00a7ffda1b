"""Tests of records of runs: their order, the interrupted run to continue, and the lock on a run's folder."""

import threading
from dataclasses import replace

from ledgers import recorded

from mlcl.store import RunFolder, RunFolders, State, home_records


def test_the_interrupted_run_of_a_job_and_data_is_found_unless_a_later_one_has_ended(tmp_path):
    folders = RunFolders(tmp_path)
    for state in (State.COMPLETE, State.FAILED, State.PRUNED):
        recorded(folders.new_folder(), state)
    recorded(folders.new_folder(), State.STOPPED, job_hash="other")
    recorded(folders.new_folder(), State.STOPPED, fingerprint="other")
    assert folders.find_unfinished("j", "d") is None
    assert folders.find_unfinished("other", "d") is not None
    folder = recorded(folders.new_folder(), State.STOPPED)
    assert folders.find_unfinished("j", "d").path == folder.path
    recorded(folders.new_folder(), State.COMPLETE)
    assert folders.find_unfinished("j", "d") is None


def test_a_run_that_another_process_holds_is_not(tmp_path):
    folders = RunFolders(tmp_path)
    folder = recorded(folders.new_folder())
    with folder.try_lock() as locked:
        assert locked
        assert folder.is_owned
        assert folders.find_unfinished("j", "d") is None
        with RunFolder(folder.path).try_lock() as second:
            assert not second
    assert not folder.is_owned
    assert folders.find_unfinished("j", "d").path == folder.path


def test_a_run_that_completes_while_it_is_looked_for_is_not_trained_again(tmp_path, monkeypatch):
    folders = RunFolders(tmp_path)
    run_folder, try_lock = recorded(folders.new_folder()), RunFolder.try_lock

    def after_its_end(folder, patience=0.0):
        run_folder.set_state(State.COMPLETE)
        return try_lock(folder, patience)

    monkeypatch.setattr(RunFolder, "try_lock", after_its_end)
    assert folders.find_unfinished("j", "d") is None


def test_one_that_is_opened_again_is_the_same_in_another_state(tmp_path):
    folder = recorded(RunFolders(tmp_path).new_folder(), State.RUNNING)
    before = folder.record
    folder.set_state(State.COMPLETE)
    assert folder.record == replace(before, state=State.COMPLETE)
    recorded(folder, State.STOPPED, log="another")
    assert folder.record == replace(before, state=State.STOPPED, log="another")


def test_a_folder_that_is_gone_is_no_run(tmp_path):
    folder = recorded(RunFolders(tmp_path).new_folder())
    assert [run_folder.path for run_folder, _ in home_records(tmp_path)] == [folder.path]
    (folder.path / ".lock").unlink(missing_ok=True)
    folder.path.rmdir()
    assert list(home_records(tmp_path)) == []


def test_the_latest_of_a_name_is_found(tmp_path):
    folders = RunFolders(tmp_path, "sweeps")
    recorded(folders.new_folder(), State.COMPLETE, name="night")
    folder = recorded(folders.new_folder(), State.STOPPED, name="night")
    recorded(folders.new_folder(), State.STOPPED, name="day")
    assert folders.find_named("night").path == folder.path
    assert folders.find_named("morning") is None


def test_all_kinds_of_a_home_are_in_the_order_in_which_they_were_made_whatever_their_ids(tmp_path):
    pairs = [("runs", "z"), ("sweeps", "c"), ("runs", "y"), ("tables", "a"), ("sweeps", "b")]
    for kind, id in pairs:
        recorded(RunFolders(tmp_path, kind).new_folder(id))
    recorded(RunFolder(tmp_path / "runs" / "z"))  # a run that is continued keeps its place
    actual = [(record.kind, record.id) for _, record in home_records(tmp_path)]
    assert actual == pairs[::-1]


def test_an_id_that_is_taken_is_not_given_again(tmp_path):
    folders = RunFolders(tmp_path, "sweeps")
    first = recorded(folders.new_folder("mlcl-1"))
    assert folders.find("mlcl-1").path == first.path
    assert folders.new_folder("mlcl-1").path != first.path
    assert folders.find("mlcl-2") is folders.find(None) is None


def test_a_held_folder_can_be_waited_for(tmp_path):
    folder = RunFolders(tmp_path).new_folder()
    held_event, done_event = threading.Event(), threading.Event()

    def hold():
        with folder.try_lock():
            held_event.set()
            done_event.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held_event.wait(60)
    with folder.try_lock(patience=0.1) as locked:
        assert not locked
    done_event.set()
    with folder.try_lock(patience=60) as locked:
        assert locked
    holder.join()
