"""Tests that a home's database is read exactly as it was written, or is refused."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from ledgers import new_ledger, recorded

from mlcl.errors import UserError
from mlcl.service.engine.entries import Training
from mlcl.service.engine.ledger import Ledger
from mlcl.store import BACKUP, Database, RunFolders, State, database, home_records, read_event


@pytest.fixture
def home(tmp_path):
    """Returns a home with a run and a sweep of some events."""
    recorded(RunFolders(tmp_path).new_folder("mlcl-run"), State.COMPLETE)
    ledger = new_ledger(tmp_path / "sweeps" / "mlcl-sweep")
    ledger.append("sweep", id="mlcl-sweep", name="night")
    for number in range(20):
        job, settings = {"train": {"seed": number}}, {"x": 0.1 * number}
        ledger.open(Training(f"t{number}", "t", job, settings, number=number))
        ledger.append("value", key=f"t{number}", epoch=1, score=0.125 * number)
    return tmp_path


def told(home):
    """Returns all records and events of a home as text, after a check of its database."""
    Database(home).check()
    records = [record for _, record in home_records(home)]
    return repr([records, [list(Database(home).events(record.number)) for record in records]])


def refused(home, match):
    with pytest.raises(UserError, match=match) as error:
        Database(home).check()
    assert "home.db" in error.value.line()
    assert "mlcl doctor --fix" in str(error.value.allowed)


def test_events_are_read_in_pages_that_lock_the_file_for_a_moment_each(home, monkeypatch):
    sweep = max(record.number for _, record in home_records(home))
    all_events = list(Database(home).events(sweep))
    monkeypatch.setattr(database, "PAGE", 3)
    events = Database(home).events(sweep)
    first_events = [next(events) for _ in range(4)]
    Ledger(home / "sweeps" / "mlcl-sweep").append("value", key="t1", epoch=2, score=0.5)
    assert [*first_events, *events] == all_events, "what was added since is left out"
    assert len(list(Database(home).events(sweep))) == len(all_events) + 1


def test_a_damaged_page_is_refused_when_it_is_reached(home, monkeypatch):
    monkeypatch.setattr(database, "PAGE", 3)
    with Database(home)._connect("rw") as connection:
        connection.execute("UPDATE events SET content = replace(content, '2.375', '2.5')")
    events = []
    with pytest.raises(UserError, match="event 41 of run 2 was changed"):
        events.extend(Database(home).events(max(record.number for _, record in home_records(home))))
    assert len(events) == 40
    refused(home, "damaged")


def test_equal_keys_of_events_are_one_string(home):
    first, second = (read_event('{"new_key_of_events": 1}') for _ in range(2))
    assert next(iter(first)) is next(iter(second))


def test_none_of_a_thousand_flipped_bits_changes_what_is_read(home):
    content, before = Database(home).file.read_bytes(), told(home)
    draw = random.Random(19)
    n_refused = 0
    for bit in draw.sample(range(8 * len(content)), 1000):
        flipped_content = bytearray(content)
        flipped_content[bit // 8] ^= 1 << bit % 8
        Database(home).file.write_bytes(flipped_content)
        try:
            assert told(home) == before, bit
        except UserError:
            n_refused += 1
    assert n_refused > 200  # the other bits are in unused parts of pages


def test_a_flipped_bit_in_a_value_is_always_refused(home):
    content = Database(home).file.read_bytes()
    for text in (b"mlcl-sweep", b'"score": 1.25', b'"state": "COMPLETE"', b'"seed": 17'):
        start = content.index(text)
        for bit in range(8 * len(text)):
            flipped_content = bytearray(content)
            flipped_content[start + bit // 8] ^= 1 << bit % 8
            Database(home).file.write_bytes(flipped_content)
            refused(home, "damaged")
            assert Database(home).file.read_bytes() == flipped_content, "looking changes nothing"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM runs WHERE number = 2",
        "DELETE FROM runs WHERE number = 1",
        "DELETE FROM events WHERE number = 7",
        "DELETE FROM events WHERE number = (SELECT max(number) FROM events)",
        "UPDATE events SET content = replace(content, '0.125', '0.625')",
        "UPDATE runs SET content = replace(content, 'COMPLETE', 'FAILED')",
        "UPDATE events SET number = number + 100 WHERE number = 5",
        "INSERT INTO events (run, content, digest) SELECT run, content, digest FROM events WHERE number = 5",
    ],
)
def test_rows_that_were_changed_or_taken_out_are_missed(home, statement):
    with Database(home)._connect("rw") as connection:
        connection.execute(statement)
    content = Database(home).file.read_bytes()
    refused(home, "damaged")
    assert Database(home).file.read_bytes() == content, "looking changes nothing"


@pytest.mark.parametrize(
    ("content", "match"),
    [(None, "missing"), (b"", "damaged"), (b"not a database at all", "damaged"),
     (b"SQLite format 3\0" + bytes(84), "damaged")],
)  # fmt: skip
def test_a_file_that_is_gone_or_no_database_is_refused(home, content, match):
    Database(home).file.unlink()
    if content is not None:
        Database(home).file.write_bytes(content)
    with pytest.raises(UserError, match=match):
        Database(home).check()
    assert Database(home).file.exists() == (content is not None)


def test_a_home_of_a_later_release_is_refused_and_left_alone(home):
    with Database(home)._connect("rw") as connection:
        connection.execute("PRAGMA user_version=9")
    content = Database(home).file.read_bytes()
    for method in (Database(home).check, Database(home).create, Database(home).check_version):
        with pytest.raises(UserError, match="later mlcl") as error:
            method()
        assert "install the mlcl that wrote it" in error.value.line()
    assert Database(home).file.read_bytes() == content


def test_a_transaction_that_fails_writes_nothing(home):
    before = told(home)

    def interrupted():
        with Database(home).transaction() as transaction:
            transaction.change_run(1, state=State.FAILED)
            transaction.add_run({"id": "x"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told(home) == before


def test_a_disk_that_is_full_is_an_error_and_changes_nothing(home):
    before, limits = told(home), resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = Ledger(home / "sweeps" / "mlcl-sweep")
    resource.setrlimit(resource.RLIMIT_FSIZE, (Database(home).file.stat().st_size, limits[1]))
    try:
        with pytest.raises(OSError, match=r"full|I/O|space") as error:
            ledger.append("registered", key="t1", text="x" * 100_000, run="r")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno in (errno.EIO, errno.ENOSPC)
    assert not ledger.registered
    assert told(home) == before
    ledger.append("registered", key="t1", text="x", run="r")
    assert Ledger(home / "sweeps" / "mlcl-sweep").registered == {"t1": "x"}


def test_only_the_command_that_read_all_events_may_add_one(home):
    first, second = (Ledger(home / "sweeps" / "mlcl-sweep") for _ in range(2))
    first.append("session")
    with pytest.raises(UserError, match="did not write"):
        second.append("session")


def test_the_backup_is_the_present_content(home):
    Database(home).back_up()
    before = told(home)
    Ledger(home / "sweeps" / "mlcl-sweep").append("session")
    assert told(home) != before
    (home / BACKUP).replace(Database(home).file)
    assert told(home) == before


def test_a_home_without_a_database_says_nothing_and_stays_so(tmp_path):
    Database(tmp_path).check()
    Database(tmp_path).back_up()
    assert Database(tmp_path).runs() == {}
    assert list(home_records(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_database_whose_first_command_makes_it_or_was_killed_meanwhile_is_an_empty_one(tmp_path):
    Database(tmp_path).file.touch()
    Database(tmp_path).check()
    assert Database(tmp_path).runs() == {}
    Database(tmp_path).create()
    recorded(RunFolders(tmp_path).new_folder("mlcl-run"), State.COMPLETE)
    assert [record.id for _, record in home_records(tmp_path)] == ["mlcl-run"]


WRITER = """
import sys
from pathlib import Path
from mlcl.service.engine.entries import Training
from mlcl.service.engine.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
count = len(ledger.registered)
while True:
    ledger.append("registered", key=str(count), text="x" * 3000, run="r")
    count += 1
    print(count, flush=True)
"""


def test_a_process_that_is_killed_while_it_writes_loses_nothing_that_it_has_written(home):
    folder, draw, n_acknowledged = home / "sweeps" / "mlcl-sweep", random.Random(5), 0
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        assert first > n_acknowledged
        time.sleep(draw.uniform(0, 0.1))
        os.kill(writer.pid, signal.SIGKILL)
        n_acknowledged = max([first, *map(int, writer.stdout.read().split())])
        writer.wait()
        Database(home).check()
        # The last event may be on the disk although the process was killed before it acknowledged it.
        assert len(Ledger(folder).registered) in (n_acknowledged, n_acknowledged + 1)


AT_ONCE = """
import sys
from pathlib import Path
from mlcl.service.engine.entries import Training
from mlcl.service.engine.ledger import Ledger
from mlcl.store import Database, RunFolder
home, number = Path(sys.argv[1]), sys.argv[2]
Database(home).create()
folder = RunFolder(home / "sweeps" / f"mlcl-{number}")
folder.open(experiment="e", job_hash="j", fingerprint="d", log="l", uri="u")
ledger = Ledger(folder.path)
for key in range(10):
    ledger.append("registered", key=str(key), text=number, run="r")
Database(home).back_up()
"""


def test_commands_at_once_on_a_new_home_lose_nothing(tmp_path):
    home, count = tmp_path / "home", 32
    commands = [
        subprocess.Popen([sys.executable, "-c", AT_ONCE, home, str(number)]) for number in range(count)
    ]
    assert [command.wait() for command in commands] == [0] * count
    Database(home).check()
    assert sorted(record.number for _, record in home_records(home)) == list(range(1, count + 1))
    for number in range(count):
        registered = Ledger(home / "sweeps" / f"mlcl-{number}").registered
        assert registered == {str(key): str(number) for key in range(10)}
    assert not list(home.glob(".*.partial"))
