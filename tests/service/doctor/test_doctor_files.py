"""Tests that the doctor reports faults in a home's files, and mends those not in use with --fix."""

import sqlite3
from contextlib import ExitStack, closing

from commands import mlcl
from doctored import Swept, left, look, mended, statuses, tree

from mlcl.files import lock_file
from mlcl.service.engine.entries import End, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.store import BACKUP, IMPORTING, Database
from mlcl.tracking import RunLog, State
from mlcl.tracking.cursor import LOCK


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_home_that_is_not_there_is_healthy_and_stays_so(home):
    assert look(home) == look(home, fix=True) == []
    assert not home.exists()


def test_killed_runs_sweeps_and_tables_are_stopped(home):
    (run, _), (complete_run, _), (table, _) = left(home), left(home), left(home, "tables", name="table1")
    sweep, ledger = Swept(home), Ledger(table.path)
    entry = sweep.trial()
    sweep.running()
    left(home, state=State.COMPLETE)
    ledger.append("table", id=table.path.name, name="table1")
    for folder in (run, complete_run):
        ledger.open(Training(folder.path.name, "CE, All, seed 0", {}, {}))
        ledger.append("begin", key=folder.path.name, cpus=1, gpus=0)
    ledger.close(complete_run.path.name, End(State.COMPLETE))
    killed_paths = [*sorted((run.path, complete_run.path)), sweep.folder.path, table.path]
    assert mended(home, "killed") == list(map(str, killed_paths))
    states = {run.record.state, table.record.state, sweep.folder.record.state}
    assert states == {RunLog.attach(home, run.path.name).state} == {State.STOPPED}
    assert complete_run.record.state is State.COMPLETE
    assert Ledger(table.path).entries[run.path.name].state is State.STOPPED
    assert Ledger(sweep.folder.path).entries[entry.key].state is State.STOPPED


def test_what_lives_is_left_alone(home):
    run, _ = left(home)
    sweep = Swept(home)
    sweep.trial()
    sweep.running()
    for folder in (run, sweep.folder):
        for name in (".checkpoint.pt.1.partial", "STOP", "ray-1/x"):
            write(folder.path / name)
    partial_file = write(home / "logs" / run.path.name / ".cursor.json.ab.partial")
    with ExitStack() as stack:
        for folder in (run, sweep.folder):
            assert stack.enter_context(folder.try_lock())
        before = tree(home)
        assert set(statuses(look(home))) <= {"NOTE"}  # a running command delivers its own log
        assert set(statuses(look(home, fix=True, uri="sqlite:///other.db"))) <= {"NOTE"}
        assert tree(home) == before
    assert str(partial_file) in {result.what for result in look(home, "partial-files")}


def test_half_written_files_are_removed(home):
    run, _ = left(home, state=State.STOPPED)
    sweep = Swept(home)
    paths = [
        write(home / "logs" / ".run-1.ab.partial" / "log.jsonl").parent,
        write(home / "sweeps" / ".sweep-1.ab.partial" / "STOP").parent,
        write(run.path / ".checkpoint.pt.12.partial"),
        write(sweep.folder.path / "trials" / "trial-0000" / ".result.json.12.partial"),
        write(home / "logs" / run.path.name / ".cursor.json.ab.partial"),
        write(home / "logs" / "never-started" / "files" / ".abc.ab.partial"),
        write(home / "cache" / "validation" / ".ab-1.npz.ab.partial"),
        write(home / "data" / ".digits-1.ab.partial" / "part.parquet").parent,
        write(home / "models" / ".run-1.ab.partial" / "weights.safetensors").parent,
        write(home / "reports" / ".sweep-1.ab.partial" / "new" / "report.md").parent.parent,
    ]
    assert mended(home, "partial-files") == list(map(str, paths))
    assert run.record.state is State.STOPPED


def test_a_half_written_file_of_a_living_writer_is_not(home):
    sweep = Swept(home)
    trial = write(sweep.folder.path / "trials" / "trial-0000" / ".checkpoint.pt.12.partial")
    log = write(home / "logs" / "x" / ".cursor.json.ab.partial")
    data = write(home / "data" / ".digits-1.ab.partial" / "part.parquet")
    cache_file = write(home / "cache" / "validation" / ".ab-1.npz.ab.partial")
    import_folder = write(home / "runs" / ".run-1.ab.partial" / "result.json").parent
    locks = [trial.with_name(".lock"), log.with_name(LOCK), home / "data" / ".digits-1.lock"]
    with ExitStack() as stack:
        for lock in (*locks, cache_file.with_name(".ab-1.npz.lock"), home / IMPORTING):
            assert stack.enter_context(lock_file(lock))
        assert look(home, "partial-files", fix=True) == []
    assert all(path.exists() for path in (trial, log, data, cache_file, import_folder))
    assert statuses(look(home, "partial-files", fix=True)) == ["MENDED"] * 5


def test_leftovers_of_killed_commands_are_removed(home):
    run, _ = left(home, state=State.STOPPED)
    sweep = Swept(home)
    paths = [
        write(run.path / "STOP"),
        write(sweep.folder.path / "ray-17" / "tuner.pkl").parent,
        write(sweep.folder.path / "STOP"),
        write(sweep.folder.path / "trials" / "trial-0000" / "STOP"),
    ]
    assert mended(home, "leftovers") == list(map(str, paths))
    assert not any(path.exists() for path in paths)


def test_a_damaged_database_is_replaced_by_the_backup(home):
    run, _ = left(home, state=State.STOPPED)
    database = Database(home)
    database.back_up()
    original = database.file.read_bytes()
    for content in (original.replace(b"STOPPED", b"STOPPEE"), b"", None):
        database.file.unlink() if content is None else database.file.write_bytes(content)
        with run.try_lock():
            assert statuses(look(home, "database", fix=True))[0] == "LEFT"  # a command is still running
        assert mended(home, "database") == [str(database.file)]
        database.check()
        assert run.record.state is State.STOPPED
    damaged_files = {file.name: file.read_bytes() for file in home.glob("home.db.damaged*")}
    assert damaged_files == {
        "home.db.damaged": original.replace(b"STOPPED", b"STOPPEE"),
        "home.db.damaged-2": b"",
    }


def test_what_a_killed_transaction_left_is_not_written_into_the_backup(home):
    database, journal = Database(home), home / "home.db-journal"
    database.create()
    for _ in range(2):
        before = len(database.runs())
        database.back_up()
        with database.transaction() as transaction:
            for _ in range(20):
                transaction.add_run({"state": "STOPPED", "name": "n" * 200})
    with closing(sqlite3.connect(database.file, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size=5")  # a small cache makes SQLite write pages before the commit
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE runs SET digest = ''")
        pages = journal.read_bytes()
    (home / "runs" / "mlcl-1").mkdir(parents=True)
    database.file.unlink()
    journal.write_bytes(pages)
    assert mended(home, "database") == [str(database.file)]
    assert len(database.runs()) == before == 20


def test_the_command_mends_a_database_that_no_other_command_opens(home):
    run, _ = left(home, state=State.STOPPED)
    database = Database(home)
    database.back_up()
    database.file.write_bytes(b"damaged" * 99)
    result = mlcl("list", "--home", home)
    assert (result.status, "`mlcl doctor --fix`" in result.err) == (2, True)
    assert "MENDED database" in " ".join(mlcl("doctor", "--fix", "--home", home).out.split())
    assert run.record.state is State.STOPPED
    assert mlcl("list", "--home", home).status == 0


def test_a_database_that_cannot_be_used_is_named(home):
    left(home, state=State.STOPPED)
    file = Database(home).file
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version=9")
    (newer_result,) = look(home, "database")
    assert ("written by a later mlcl" in newer_result.why, "install the mlcl" in newer_result.cure) == (
        True,
        True,
    )
    file.write_bytes(b"damaged")
    (damaged_result,) = look(home, "database")
    assert (damaged_result.mendable, "MLflow stay" in damaged_result.cure) == (False, True)
    (home / BACKUP).write_bytes(b"damaged")
    assert "LEFT" in statuses(look(home, "database", fix=True))
    # The other checks do not repeat the problem.
    assert not {"killed", "mlflow-states"} & {result.check for result in look(home)}
