"""Tests of the progress events that a reporter sends."""

import pytest

from mlcl.api.progress import event_text
from mlcl.service.engine.budget import Account, parse_budget
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.progress import ProgressEvent, Reporter, guard_listener
from mlcl.tracking import State

JOB = {"train": {"epochs": 4, "patience": None}, "evaluation": {"metric": "val/accuracy"}}


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    for module in ("ledger", "progress"):
        monkeypatch.setattr(f"mlcl.service.engine.{module}.now", lambda: now[0])
    return now


@pytest.fixture
def told():
    return []


@pytest.fixture
def reporter(tmp_path, clock, told):
    ledger = Ledger(tmp_path)
    for number in range(4):
        ledger.entries[f"t{number}"] = Entry(f"t{number}", f"trial {number}", JOB, {}, number=number)
    account = Account(parse_budget("1h"), ledger)
    best_entry = [None]
    progress_reporter = Reporter(
        ledger, account, told.append, metric="val/accuracy", score="val/accuracy", best=lambda: best_entry[0]
    )
    progress_reporter.found = best_entry
    return progress_reporter


def test_a_baseline_has_no_epochs(reporter, told):
    entry = Entry("b", "tfidf_svm", {**JOB, "baseline": "tfidf_svm"}, {}, state=State.COMPLETE)
    entry.metrics, entry.score = {"val/accuracy": 0.5}, 0.5
    reporter.start_stage("confirmation", 0, 1, 1)
    reporter.tell("close", entry)
    assert event_text(told[-1]) == "[1/1] tfidf_svm COMPLETE val/accuracy 0.5000  1.0 h left"


def test_a_training_from_its_beginning_to_its_end(reporter, clock, told):
    entry = reporter._ledger.entries["t0"]
    reporter.start_stage("search", 1, 4, 2)
    assert (told[-1].kind, told[-1].text) == ("stage", "search: 4 trainings, 1 done, up to 2 at once")
    assert told[-1].progress.seconds_left is None
    entry.cost.begin(clock[0], 1, 0)
    reporter._ledger.running["t0"] = entry
    reporter.tell("begin", entry)
    clock[0] += 2
    entry.intermediate.append((1, 0.25))
    reporter.tell("rung", entry)
    row = told[-1].row
    assert (row.label, row.state, row.epoch, row.epochs, row.score) == ("trial 0", State.RUNNING, 1, 4, 0.25)
    assert told[-1].progress.seconds_left is None  # three trainings are left, and one of them runs
    assert row.seconds == 2
    assert told[-1].progress.running == (row,)
    clock[0] += 8
    entry.state, entry.score = State.COMPLETE, 0.5
    entry.cost.end(clock[0])
    reporter._ledger.running.clear()
    entry.metrics = {"val/accuracy": 0.5}
    reporter.found[0] = entry
    reporter.tell("close", entry)
    last_event = told[-1]
    assert (last_event.kind, last_event.row.epoch, last_event.row.score, last_event.row.seconds) == (
        "close",
        4,
        0.5,
        10,
    )
    assert (last_event.progress.done, last_event.progress.running) == (2, ())
    assert last_event.progress.best == ("trial 0", 0.5)
    assert last_event.progress.seconds_left == 10  # two trainings are left and run at the same time


def test_the_time_left_is_at_least_that_of_each_running_training(reporter, clock, told):
    """Tests that short trainings in the same stage do not shorten the time estimated for a long one."""
    slow_entry, *other_entries = (reporter._ledger.entries[f"t{number}"] for number in range(4))
    reporter.start_stage("confirmation", 0, 4, 2)
    slow_entry.cost.begin(clock[0], 1, 0)
    reporter._ledger.running["t0"] = slow_entry
    for entry in other_entries:
        entry.cost.begin(clock[0], 1, 0)
        clock[0] += 1
        entry.state = State.COMPLETE
        entry.cost.end(clock[0])
        reporter.tell("close", entry)
    assert told[-1].progress.seconds_left == 1
    clock[0] += 297
    slow_entry.intermediate.append((3, 0.5))
    reporter.tell("rung", slow_entry)
    assert told[-1].progress.seconds_left == 100


def test_a_training_that_patience_ended_shows_its_last_epoch(reporter, told):
    entry = reporter._ledger.entries["t0"]
    entry.job = {**JOB, "train": {"epochs": 4, "patience": 1}}
    entry.intermediate, entry.metrics, entry.score = [(1, 0.5), (2, 0.25)], {"val/accuracy": 0.5}, 0.5
    entry.state = State.COMPLETE
    reporter.tell("close", entry)
    assert (told[-1].row.epoch, told[-1].row.epochs, told[-1].row.score) == (2, 4, 0.5)


def test_what_is_interrupted_is_not_done_and_a_note_has_no_progress(reporter, told):
    entry = reporter._ledger.entries["t0"]
    reporter.start_stage("confirmation", 0, 4, 2)
    reporter.tell("begin", entry)
    entry.state = State.STOPPED
    reporter.tell("close", entry)
    progress = told[-1].progress
    assert (progress.stage, progress.done, progress.seconds_left) == ("confirmation", 0, None)
    reporter.note("so it is")
    assert (told[-1].kind, told[-1].text, told[-1].progress) == ("note", "so it is", None)
    reporter.end("over")
    assert (told[-1].kind, told[-1].text) == ("end", "over")


def test_a_watcher_that_nobody_reads_any_more_ends_nothing():
    texts = []

    def watch(event):
        texts.append(event.text)
        raise BrokenPipeError

    tell = guard_listener(watch)
    tell(ProgressEvent("note", "one"))
    tell(ProgressEvent("note", "two"))
    assert texts == ["one"]
