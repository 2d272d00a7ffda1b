"""Which interrupted run is gone on with, and whose a folder is."""

import json
import random
import threading
from dataclasses import asdict, replace

import pytest

from mlcl.errors import UserError
from mlcl.service.runs.run_record import RunRecord
from mlcl.service.runs.run_store import RunFolder, RunFolders, home_records
from mlcl.tracking import RunLog, State
from mlcl.tracking.names import Tag


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


def test_no_flipped_bit_of_a_record_is_believed(tmp_path):
    folder = record(RunFolders(tmp_path, "sweeps").new(), State.COMPLETE, name="night")
    path, before = folder.path / "run.json", folder.record
    whole = path.read_bytes()
    refused, places = 0, random.Random(5).sample(range(8 * len(whole)), 500)
    for place in places:
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert folder.record in (None, before)  # of white space a flip changes nothing
        refused += folder.record is None
    assert refused > 350


@pytest.mark.parametrize(("key", "kind"), [("name", "sweeps"), ("job_hash", "runs")])
def test_a_changed_record_is_refused_by_its_command(tmp_path, key, kind):
    folders = RunFolders(tmp_path, kind)
    folder = record(folders.new(), State.STOPPED, name="night")
    id, tags = folder.path.name, {Tag.NAME: "night", Tag.JOB_HASH: "j"}
    RunLog.start(tmp_path, id, uri="u", experiment="x", name=id, owner=id, params={}, tags=tags)
    path = folder.path / "run.json"
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, key: chr(ord(tree[key][0]) ^ 1) + tree[key][1:]}))
    with pytest.raises(UserError, match="the record is missing or damaged") as caught:
        folders.named("night") if key == "name" else folders.unfinished("j", "d")
    assert caught.value.file == str(path)


def test_a_record_of_an_earlier_release_has_no_checksum(tmp_path):
    folder = record(RunFolders(tmp_path).new(), State.STOPPED)
    before = folder.record
    (folder.path / "run.json").write_text(json.dumps(asdict(before)))
    assert folder.record == before
    folder.set_state(State.COMPLETE)
    assert "sum" in json.loads((folder.path / "run.json").read_text())


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


def test_all_kinds_of_a_home_are_counted_as_one(tmp_path, monkeypatch):
    its = {"experiment": "x", "job_hash": "j", "fingerprint": "d", "log": "l", "uri": "u"}
    kinds = ("runs", "sweeps", "runs", "tables")
    old = [(kind, f"old-{number}") for number, kind in enumerate(kinds)]
    for number, (kind, id) in enumerate(old):  # each kind counted alone, as the clock was right
        folder = record(RunFolders(tmp_path, kind).new(id), State.COMPLETE)
        folder.write(replace(folder.record, created=f"2000-{number}", order=1 + kinds[:number].count(kind)))
    for number, kind in enumerate(kinds):
        monkeypatch.setattr("mlcl.service.runs.run_store.stamp", lambda _, number=number: f"1970-{-number}")
        RunFolders(tmp_path, kind).new(f"new-{number}").open(**its)
    found = [(folder.path.parent.name, record.id) for folder, record in home_records(tmp_path)]
    assert found[::-1] == [*old, *((kind, f"new-{number}") for number, kind in enumerate(kinds))]


def test_nothing_takes_the_place_of_a_damaged_record(tmp_path):
    its = {"experiment": "x", "job_hash": "j", "fingerprint": "d", "log": "l", "uri": "u"}
    lost = RunFolders(tmp_path, "sweeps").new("lost")
    before = lost.open(**its)
    (lost.path / "run.json").write_text("{")
    after = RunFolders(tmp_path).new("after").open(**its)
    assert after.place > before.place > 0


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
