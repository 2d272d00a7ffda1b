"""The ledger: what its events add up to, read at any moment."""

import errno
import os
import random
import resource
import time

import pytest

from mlcl.errors import UserError
from mlcl.service.engine.ledger import LEDGER, Ledger
from mlcl.service.runs.run_store import RunFolder
from mlcl.tracking import State

JOB = {"train": {"epochs": 4}}


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("mlcl.service.engine.ledger.now", lambda: now[0])
    return now


@pytest.fixture
def ledger(tmp_path, clock):
    ledger = Ledger(tmp_path)
    ledger.append("sweep", id="mlcl-1", free=[])
    ledger.append("session")
    return ledger


def generation(ledger, number=0, kept=None):
    ledger.append(
        "generation",
        number=number,
        space_hash=f"h{number}",
        space="",
        distributions={},
        modes=["max"],
        kept=kept or {},
        dropped={},
        warm=[],
    )


def opened(ledger, number, group=None, generation=0):
    key = f"{group}-seed{number}" if group else f"trial-{number}"
    how = {"number": None if group else number, "group": group, "params": {}, "system_attrs": {}}
    ledger.append("open", key=key, label=key, job=JOB, settings={"x": 1}, generation=generation, **how)
    return key


def closed(ledger, key, state, score=None, **how):
    values = [] if score is None else [score]
    usual = {"values": values, "metrics": {}, "chosen": {}, "reason": ""}
    ledger.append("close", key=key, state=state, score=score, **(usual | how))


def summary(ledger):
    return {
        name: value for name, value in vars(ledger).items() if name not in ("_chain", "_appended", "_session")
    }


def test_what_is_read_is_what_was_appended(ledger, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    ledger.append("rung", key=key, epoch=1, score=0.25)
    ledger.append("rung", key=key, epoch=2, score=float("nan"))
    closed(ledger, key, State.COMPLETE, 0.5, metrics={"val/accuracy": 0.5}, chosen={"evaluation.knn.k": 3})
    ledger.append("group", key="g", label="g", job=JOB, settings={})
    ledger.append("close_group", key="g", state=State.FAILED, reason="why")
    ledger.append("registered", key=key, text="models:/x@best")
    ledger.append("end", state=State.COMPLETE, reason="")
    again = Ledger(tmp_path)
    assert repr(summary(again)) == repr(summary(ledger))
    entry = again.entries[key]
    assert (entry.state, entry.score, entry.values) == (State.COMPLETE, 0.5, [0.5])
    assert entry.rungs[0] == (1, 0.25)
    assert entry.chosen == {"evaluation.knn.k": 3}
    assert again.group_states == {"g": (State.FAILED, "why")}
    assert again.history == [("rung", key, 1), ("rung", key, 2), ("close", key, 0)]
    assert (again.state, again.registered) == (State.COMPLETE, {key: "models:/x@best"})


@pytest.mark.parametrize("torn", [b"{", b'{"event": "open", "at": 1', b'{"event": "end", "state": "FAILED"}'])
def test_a_torn_line_never_happened_and_is_no_part_of_the_next(ledger, tmp_path, torn):
    before = summary(ledger)
    with (tmp_path / LEDGER).open("ab") as file:
        file.write(torn)
    again = Ledger(tmp_path)
    assert summary(again) == before
    again.append("end", state=State.STOPPED, reason="")
    assert Ledger(tmp_path).state is State.STOPPED
    assert (tmp_path / LEDGER).read_bytes().count(b"\n") == 3


DAMAGED = (
    '{"event": "rung"',
    '{"event": "rung", "at": 1, "key": "unknown"}',
    "[1]",
    '{"event": "moved", "at": 1}',
)


@pytest.mark.parametrize("line", DAMAGED)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_damaged_line_is_named(ledger, tmp_path, line, sealed):
    path = tmp_path / LEDGER
    if not sealed:  # as an earlier release wrote it
        path.write_text('{"event": "sweep", "at": 1}\n{"event": "session", "at": 2}\n')
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=r"ledger.jsonl.*line 3.*damaged"):
        Ledger(tmp_path)


@pytest.fixture
def ended(ledger, tmp_path):
    """The lines of a ledger whose command has ended."""
    folder = RunFolder(tmp_path)
    folder.open(experiment="e", job_hash="j", fingerprint="f", log="l", uri="u")
    generation(ledger)
    for number in range(2):
        key = opened(ledger, number)
        ledger.append("begin", key=key, cpus=1, gpus=0)
        for epoch in (1, 2):
            ledger.append("rung", key=key, epoch=epoch, score=0.125 * epoch)
        closed(ledger, key, State.COMPLETE, 0.5 + number, metrics={"val/accuracy": 0.5}, reason="J")
    ledger.append("end", state=State.COMPLETE, reason="")
    folder.set_state(State.COMPLETE, ledger.last)
    return (tmp_path / LEDGER).read_bytes().splitlines(keepends=True)


def test_none_of_a_thousand_flipped_bits_changes_what_is_read(ended, ledger, tmp_path):
    RunFolder(tmp_path).set_state(State.RUNNING, "")  # as after a kill: the file is alone
    whole, refused = b"".join(ended), 0
    for place in random.Random(19).sample(range(8 * len(whole)), 1000):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        (tmp_path / LEDGER).write_bytes(flipped)
        try:
            assert summary(Ledger(tmp_path)) == summary(ledger), place
        except UserError:
            refused += 1
    assert refused == 1000


@pytest.mark.parametrize("state", [State.RUNNING, State.COMPLETE])
def test_a_line_that_was_changed_moved_or_taken_out_is_found(ended, tmp_path, state):
    RunFolder(tmp_path).set_state(state)

    def said(lines):
        (tmp_path / LEDGER).write_bytes(b"".join(lines))
        with pytest.raises(UserError, match="the ledger of a sweep is damaged") as caught:
            Ledger(tmp_path)
        return caught.value.key

    for place in range(len(ended) - 1):
        assert said(ended[:place] + ended[place + 1 :]) == f"line {place + 1}"
        assert said([*ended[:place], ended[place + 1], ended[place], *ended[place + 2 :]])
    better = ended[7].replace(b'"score": 0.5', b'"score": 0.9')
    assert better != ended[7]
    assert said([*ended[:7], better, *ended[8:]]) == "line 8"


def test_lines_that_are_cut_off_after_the_end_are_missed(ended, tmp_path):
    whole = b"".join(ended)
    for size in (len(whole) - 1, len(whole) // 2, len(ended[0]), 0):
        (tmp_path / LEDGER).write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"run\.json knows of later lines"):
            Ledger(tmp_path)
    (tmp_path / LEDGER).unlink()
    with pytest.raises(UserError, match=r"run\.json knows of later lines"):
        Ledger(tmp_path)


def test_a_ledger_without_checksums_is_read_and_covered_by_the_next_line(ended, ledger, tmp_path):
    old = [line.partition(b', "sum"')[0] + b"}\n" for line in ended]
    folder = RunFolder(tmp_path)
    folder.set_state(State.COMPLETE, "")
    (tmp_path / LEDGER).write_bytes(b"".join(old))
    assert summary(Ledger(tmp_path)) == summary(ledger)
    (tmp_path / LEDGER).write_bytes(b"".join(old[:-1]))
    with pytest.raises(UserError, match=r"run\.json says COMPLETE"):
        Ledger(tmp_path)
    folder.set_state(State.RUNNING)
    again = Ledger(tmp_path)
    again.append("session")
    lines = (tmp_path / LEDGER).read_bytes().splitlines(keepends=True)
    assert (lines[:-1], lines[-1].count(again.last.encode())) == (old[:-1], 1)
    assert Ledger(tmp_path).state is State.RUNNING
    (tmp_path / LEDGER).write_bytes(b"".join([*lines[:6], *lines[7:]]))
    with pytest.raises(UserError, match="line 13"):
        Ledger(tmp_path)


def test_a_full_disk_is_an_error_and_leaves_whole_lines(ledger, tmp_path, monkeypatch):
    whole, write = (tmp_path / LEDGER).read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:10]))
    with pytest.raises(OSError, match="No space left") as caught:
        opened(ledger, 0)
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / LEDGER).read_bytes() == whole
    assert not ledger.entries


def test_a_file_that_may_grow_no_more_keeps_whole_lines(ledger, tmp_path):
    whole, limits = (tmp_path / LEDGER).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (10, 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + room, limits[1]))
        try:
            with pytest.raises(OSError, match="No space left" if room else "File too large"):
                opened(ledger, 0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (tmp_path / LEDGER).read_bytes() == whole
    key = opened(ledger, 0)
    assert list(Ledger(tmp_path).entries) == [key]


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_a_clock_that_is_set_meanwhile_costs_nothing(tmp_path, monkeypatch, jump):
    ledger, began = Ledger(tmp_path), time.time()
    ledger.append("session")
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    monkeypatch.setattr("time.time", lambda: began + jump)
    closed(ledger, key, State.COMPLETE, 0.5)
    for unit in ("clock", "cpu"):
        assert 0 < Ledger(tmp_path).spent(unit) < 600


def test_time_is_counted_over_sessions_and_not_between_them(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=2, gpus=0.5)
    clock[0] += 10
    ledger.append("rung", key=key, epoch=1, score=0.1)
    clock[0] += 5
    closed(ledger, key, State.STOPPED)
    clock[0] += 1000  # nobody works
    ledger = Ledger(tmp_path)
    ledger.append("session")
    ledger.append("begin", key=key, cpus=2, gpus=0.5)
    clock[0] += 5
    closed(ledger, key, State.COMPLETE, 0.5)
    for each in (ledger, Ledger(tmp_path)):
        assert each.entries[key].cost.seconds == 20
        assert [each.spent(unit) for unit in ("clock", "cpu", "gpu")] == [20, 40, 10]


def test_a_killed_training_counts_up_to_the_last_that_was_heard_of_it(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("begin", key=key, cpus=1, gpus=0)
    clock[0] += 10
    ledger.append("rung", key=key, epoch=1, score=0.1)
    clock[0] += 3600
    ledger = Ledger(tmp_path)
    ledger.append("session")
    assert ledger.spent("cpu") == 10
    assert ledger.entries[key].resumable


def test_closing_what_was_killed_does_not_count_the_time_until_then(ledger, clock, tmp_path):
    generation(ledger)
    key = opened(ledger, 0)
    ledger.append("session")
    ledger.append("begin", key=key, cpus=1, gpus=0)
    clock[0] += 10
    ledger.append("beat")
    clock[0] += 36_000
    ledger = Ledger(tmp_path)
    ledger.append("killed")
    closed(ledger, key, State.STOPPED, None)
    ledger.append("end", state=State.STOPPED, reason="its process was killed")
    clock[0] += 36_000
    ledger.append("session")
    clock[0] += 5
    ledger.append("beat")
    assert (ledger.spent("clock"), ledger.spent("cpu")) == (15, 10)
    assert Ledger(tmp_path).spent("clock") == 15


def test_a_second_process_of_a_training_is_no_second_time(ledger, clock):
    generation(ledger)
    key = opened(ledger, 0)
    for _ in range(2):
        ledger.append("begin", key=key, cpus=1, gpus=0)
        clock[0] += 10
    closed(ledger, key, State.COMPLETE, 0.5)
    assert ledger.spent("cpu") == 20


def test_which_trials_compare_in_the_present_space(ledger):
    assert ledger.counted() == []
    generation(ledger)
    for number in range(3):
        closed(ledger, opened(ledger, number), State.COMPLETE, 0.5)
    kept = {"params": {}, "state": "COMPLETE", "values": [0.5], "rungs": []}
    generation(ledger, 1, kept={"trial-1": kept})
    opened(ledger, 3, generation=1)
    opened(ledger, 1, group="g")
    assert [entry.key for entry in ledger.counted()] == ["trial-1", "trial-3"]
    assert [entry.key for entry in ledger.trials()] == ["trial-0", "trial-1", "trial-2", "trial-3"]
    assert [entry.key for entry in ledger.trials(1)] == ["trial-3"]
    assert [entry.key for entry in ledger.seeds_of("g")] == ["g-seed1"]


def test_a_group_has_no_state_while_its_seeds_run(ledger):
    generation(ledger)
    ledger.append("group", key="g", label="g", job=JOB, settings={})
    key = opened(ledger, 1, group="g")
    closed(ledger, key, State.STOPPED)
    ledger.append("close_group", key="g", state=State.STOPPED, reason="")
    assert ledger.group_states == {"g": (State.STOPPED, "")}
    ledger.append("begin", key=key, cpus=1, gpus=0)
    assert ledger.group_states == {}
    ledger.append("close_group", key="g", state=State.COMPLETE, reason="")
    opened(ledger, 2, group="g")
    assert ledger.group_states == {}


def test_only_what_is_settled_is_in_the_order_of_ends(ledger):
    generation(ledger)
    key = opened(ledger, 0)
    closed(ledger, key, State.BUDGET)
    assert ledger.history == []
    ledger.append("begin", key=key, cpus=1, gpus=0)
    assert ledger.entries[key].state is State.RUNNING
    closed(ledger, key, State.PRUNED, 0.1)
    assert ledger.history == [("close", key, 0)]
