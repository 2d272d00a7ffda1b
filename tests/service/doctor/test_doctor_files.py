"""What the doctor finds in a home's files: named without --fix, mended with it, left where somebody lives."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest
from doctored import Swept, left, look, placed, start, statuses, tree
from ledgers import events, rewrite

from mlcl.files import locked
from mlcl.service.engine.entries import End, Training
from mlcl.service.engine.ledger import FORMAT, LEDGER, Ledger
from mlcl.service.runs.run_store import RunFolders
from mlcl.tracking import State
from mlcl.tracking.cursor import LOCK


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    return tmp_path / "home"


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def mended(home, name, *paths):
    """Each found, each mended, nothing found after."""
    before = tree(home)
    found = look(home, name)
    assert [result.what for result in found] == [str(path) for path in paths]
    assert statuses(found) == ["FOUND"] * len(paths)
    assert all(result.mendable and result.why and result.cure for result in found)
    assert tree(home) == before
    assert statuses(look(home, name, fix=True)) == ["MENDED"] * len(paths)
    assert look(home, name) == []


def test_a_home_that_is_not_there_is_healthy_and_stays_so(home):
    assert look(home) == look(home, fix=True) == []
    assert not home.exists()


def test_killed_runs_and_sweeps_are_stopped(home):
    run, log = left(home)
    sweep = Swept(home)
    entry = sweep.trial()
    sweep.running()
    left(home, state=State.COMPLETE)
    mended(home, "killed", run.path, sweep.folder.path)
    assert run.record.state is sweep.folder.record.state is log.state is State.STOPPED
    assert Ledger(sweep.folder.path).entries[entry.key].state is State.STOPPED


def table_of(home, *runs):
    """A table that was killed while these runs were trained."""
    folder, _ = left(home, "tables", name="table1")
    ledger = Ledger(folder.path)
    ledger.append("table", format=FORMAT, id=folder.path.name, name="table1")
    for run in runs:
        ledger.open(Training(run.path.name, "CE, All, seed 0", {}, {}))
        ledger.append("begin", key=run.path.name, cpus=1, gpus=0)
    return folder


def test_a_killed_table_and_its_runs_are_stopped(home):
    (run, log), (done, _) = left(home), left(home)
    table = table_of(home, run, done)
    Ledger(table.path).close(done.path.name, End(State.COMPLETE))
    mended(home, "killed", *sorted((run.path, done.path)), table.path)
    assert run.record.state is table.record.state is log.state is State.STOPPED
    assert done.record.state is State.COMPLETE
    assert Ledger(table.path).entries[run.path.name].state is State.STOPPED


def test_a_tables_ledger_is_looked_at_as_a_sweeps(home):
    ledger = table_of(home).path / LEDGER
    whole = ledger.read_text()
    ledger.write_text(whole + '{"torn')
    assert not look(home, "records")
    ledger.write_text(whole + '{"event": "rung"}\n')
    mended(home, "records", ledger)
    assert ledger.read_text() == whole


def test_a_ledger_of_a_later_release_is_named(home):
    ledger = table_of(home).path / LEDGER
    rewrite(ledger, [{**event, "format": FORMAT + 1} for event in events(home)])
    (found,) = look(home, "records")
    assert found.why == "this table was written by a later mlcl"
    assert "install the mlcl that wrote it" in found.cure


def test_what_lives_is_left_alone(home):
    run, _ = left(home)
    sweep = Swept(home)
    sweep.trial(told=False)
    sweep.running()
    for folder in (run, sweep.folder):
        for name in (".checkpoint.pt.1.partial", "STOP", "ray-1/x"):
            write(folder.path / name)
        with (folder.path / "ledger.jsonl").open("a") as file:
            file.write('{"torn')
    logged = write(home / "logs" / run.path.name / ".cursor.json.ab.partial")
    with ExitStack() as living:
        for folder in (run, sweep.folder):
            assert living.enter_context(folder.owned())
        before = tree(home)
        assert set(statuses(look(home))) <= {"NOTE"}  # its command delivers
        assert set(statuses(look(home, fix=True, uri="sqlite:///other.db"))) <= {"NOTE"}
        assert tree(home) == before
    assert str(logged) in {result.what for result in look(home, "partial-files")}


def test_half_written_files_are_removed(home):
    run, _ = left(home, state=State.STOPPED)
    sweep = Swept(home)
    paths = [
        write(run.path / ".checkpoint.pt.12.partial"),
        write(sweep.folder.path / "trials" / "trial-0000" / ".result.json.12.partial"),
        write(home / "logs" / run.path.name / ".cursor.json.ab.partial"),
        write(home / "logs" / "never-started" / "files" / ".abc.ab.partial"),
        write(home / "data" / ".digits-1.ab.partial" / "part.parquet").parent,
        write(home / "models" / ".run-1.ab.partial" / "weights.safetensors").parent,
        write(home / "reports" / ".sweep-1.ab.partial" / "new" / "report.md").parent.parent,
    ]
    mended(home, "partial-files", *paths)
    assert run.record.state is State.STOPPED


def test_a_half_written_file_of_a_living_writer_is_not(home):
    sweep = Swept(home)
    trial = write(sweep.folder.path / "trials" / "trial-0000" / ".checkpoint.pt.12.partial")
    log = write(home / "logs" / "x" / ".cursor.json.ab.partial")
    data = write(home / "data" / ".digits-1.ab.partial" / "part.parquet")
    with ExitStack() as living:
        for lock in (trial.with_name(".lock"), log.with_name(LOCK), home / "data" / ".digits-1.lock"):
            assert living.enter_context(locked(lock))
        assert look(home, "partial-files", fix=True) == []
    assert all(path.exists() for path in (trial, log, data))
    assert statuses(look(home, "partial-files", fix=True)) == ["MENDED"] * 3


def test_leftovers_of_killed_commands_are_removed(home):
    run, _ = left(home, state=State.STOPPED)
    sweep = Swept(home)
    paths = [
        write(run.path / "STOP"),
        write(sweep.folder.path / "ray-17" / "tuner.pkl").parent,
        write(sweep.folder.path / "STOP"),
        write(sweep.folder.path / "trials" / "trial-0000" / "STOP"),
    ]
    mended(home, "leftovers", *paths)
    assert not any(path.exists() for path in paths)


def test_a_truncated_last_line_is_no_finding(home):
    # Readers skip it, and the next writer cuts it off.
    sweep = Swept(home)
    sweep.trial(State.COMPLETE)
    log = home / "logs" / sweep.id / "log.jsonl"
    before = look(home)
    for path in (sweep.ledger.path, sweep.folder.path / "study.journal", log):
        with path.open("a") as file:
            file.write('{"torn')
    assert look(home) == before
    assert {result.check for result in before} == {"delivery"}


def test_records_and_ledgers_that_are_known_nowhere_else_are_named_only(home):
    run = write(home / "runs" / "lost" / "run.json", "{").parent
    sweep = Swept(home)
    sweep.ledger.path.write_text(sweep.ledger.path.read_text().replace('"study"', '"STUDY"'))
    paths = [str(run / "run.json"), str(sweep.ledger.path)]
    found = look(home, "records")
    assert [result.what for result in found] == paths
    assert not any(result.mendable for result in found)
    before = tree(home)
    assert statuses(look(home, "records", fix=True)) == ["LEFT", "LEFT"]
    assert tree(home) == before
    assert look(home, "studies") == []  # said once


@pytest.mark.parametrize("text", ["", "{", None])
@pytest.mark.parametrize("state", [State.RUNNING, State.COMPLETE])
def test_a_runs_record_is_written_anew_from_its_log(home, text, state):
    run, _ = left(home, state=state)
    path, before = run.path / "run.json", run.record
    path.unlink() if text is None else path.write_text(text)
    mended(home, "records", path)
    known = {"created": "now", "job_hash": "j", "fingerprint": "d", "tracking_uri": before.tracking_uri}
    assert replace(run.record, **known) == before


@pytest.mark.parametrize("key", ["place", "order"])  # order: of an earlier release
def test_a_records_place_is_what_it_was(home, key):
    clock = ["2000", "2002", "1971"] if key == "place" else ["1971", "1972", "2999"]  # the log's time is now
    runs = [left(home)[0] for _ in clock]
    for number, (run, created) in enumerate(zip(runs, clock, strict=True), start=1):
        placed(home, run, created, **{key: number})
    for lost in runs[1:] if key == "place" else runs[1:2]:
        (lost.path / "run.json").write_text("{")
        mended(home, "records", lost.path / "run.json")
        assert [folder.path for folder, _ in RunFolders(home).records()] == [run.path for run in runs[::-1]]


def test_without_fix_not_a_byte_is_changed(home):
    run, _ = left(home)
    sweep = Swept(home)
    sweep.trial(told=False)
    sweep.running()
    write(run.path / "STOP")
    write(run.path / ".x.1.partial")
    write(home / "logs" / "odd" / "log.jsonl", json.dumps({"kind": "start"}) + '\n{"torn')
    start(home, "other", "other", uri="http://elsewhere")
    before = tree(home)
    checks = {result.check for result in look(home)}
    assert checks >= {"killed", "partial-files", "leftovers", "delivery", "studies"}
    assert tree(home) == before
