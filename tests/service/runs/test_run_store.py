"""Which interrupted run is gone on with, and whose a folder is."""

import threading
from dataclasses import replace

from mlcl.service.runs.run_store import RunFolder, RunFolders, RunRecord
from mlcl.tracking import State


def record(folder, state, job="j", data="d", name=""):
    folder.write(RunRecord(folder.path.name, "x", job, data, state, "log", "uri", "now", name))
    return folder


def test_an_interrupted_run_of_the_same_job_and_data_is_found(tmp_path):
    folders = RunFolders(tmp_path)
    for state in (State.COMPLETE, State.FAILED, State.PRUNED):
        record(folders.new(), state)
    record(folders.new(), State.STOPPED, job="other")
    record(folders.new(), State.STOPPED, data="other")
    assert folders.unfinished("j", "d") is None
    assert folders.unfinished("other", "d") is not None


def later(folders, number):
    return RunFolder(folders.root / f"mlcl-20990101-00000{number}-abcdef")


def test_a_later_run_settles_an_older_interrupted_one(tmp_path):
    folders = RunFolders(tmp_path)
    stopped = record(later(folders, 1), State.STOPPED)
    assert folders.unfinished("j", "d").path == stopped.path
    record(later(folders, 2), State.COMPLETE)
    assert folders.unfinished("j", "d") is None


def test_a_run_that_another_process_holds_is_not(tmp_path):
    folders = RunFolders(tmp_path)
    running = record(folders.new(), State.RUNNING)
    with running.owned() as mine:
        assert mine
        assert folders.unfinished("j", "d") is None
        with RunFolder(running.path).owned() as second:
            assert not second
    assert folders.unfinished("j", "d").path == running.path


def test_a_damaged_record_is_no_run(tmp_path):
    folder = RunFolders(tmp_path).new()
    folder.path.mkdir(parents=True)
    for content in ("", "{", '{"id": "x"}', '{"state": "ODD"}'):
        (folder.path / "run.json").write_text(content)
        assert folder.record is None
    assert RunFolders(tmp_path).unfinished("j", "d") is None


def test_a_record_changes_state_whole(tmp_path):
    folder = record(RunFolders(tmp_path).new(), State.RUNNING)
    before = folder.record
    folder.set_state(State.COMPLETE)
    assert folder.record == replace(before, state=State.COMPLETE)
    assert [p.name for p in folder.path.iterdir()] == ["run.json"]


def test_the_latest_of_a_name_is_found(tmp_path):
    folders = RunFolders(tmp_path, "sweeps")
    record(later(folders, 1), State.COMPLETE, name="night")
    latest = record(later(folders, 2), State.STOPPED, name="night")
    record(later(folders, 3), State.STOPPED, name="day")
    assert folders.named("night").path == latest.path
    assert folders.named("morning") is None


def test_a_clock_that_was_set_back_changes_no_order(tmp_path, monkeypatch):
    folders = RunFolders(tmp_path, "sweeps")
    old = record(later(folders, 9), State.STOPPED, name="night")  # of a release without an order
    for second in (3, 2, 1):
        monkeypatch.setattr("mlcl.service.runs.run_store.stamp", lambda _, second=second: f"1970-{second}")
        its = {"experiment": "x", "job_hash": "j", "fingerprint": "d", "log": "l", "uri": "u"}
        latest = later(folders, second)
        latest.open(**its, name="night")
        assert folders.named("night").path == latest.path
    old.open(**its, name="night")
    assert folders.named("night").path == latest.path


def test_a_held_folder_can_be_waited_for(tmp_path):
    folder = RunFolders(tmp_path).new()
    held, done = threading.Event(), threading.Event()

    def hold():
        with folder.owned():
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    with folder.owned(patience=0.1) as mine:
        assert not mine
    done.set()
    with folder.owned(patience=60) as mine:
        assert mine
    holder.join()


def test_who_owns_a_folder_removes_what_a_killed_writer_of_its_record_left(tmp_path):
    folder = RunFolders(tmp_path).new()
    folder.path.mkdir(parents=True)
    half = folder.path / ".run.json.ab12.partial"
    half.write_text("{")
    with folder.owned() as mine:
        assert mine
        assert not half.exists()
        half.write_text("{")
        with folder.owned() as again:
            assert not again
            assert half.exists()
