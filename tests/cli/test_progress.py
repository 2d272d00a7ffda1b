"""Tests the progress of a run and of a sweep: plain lines, JSON lines and live views."""

import io
import json
import math

import pytest
from rich.console import Console

from mlcl.api import progress as api_progress
from mlcl.api.progress import PLAIN_EVERY, event_text, plain_lines
from mlcl.cli import output
from mlcl.cli import progress as view
from mlcl.cli.progress import RunProgress, SweepTable, print_event
from mlcl.markup import duration
from mlcl.service.engine.progress import Progress, ProgressEvent, Row
from mlcl.tracking import State
from mlcl.training.events import Event


class Clock:
    """A clock that does not move by itself."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def row(number, state=State.RUNNING, epoch=3, score=0.4312, seconds=61.0, reason=""):
    return Row(f"trial {number}", state, epoch, 60, score, seconds, reason)


def progress(*running, done=3, **how):
    return Progress("search", done, 16, "val/accuracy", running, **how)


PRUNED = ProgressEvent(
    "close",
    row=row(2, State.PRUNED, 10),
    progress=progress(best=("trial 0", 0.531), seconds_left=250.0, budget_left="0.4 gpu-h"),
)


@pytest.fixture
def console(monkeypatch):
    """Returns the console of standard error, as a terminal of 160 columns."""
    terminal_console = Console(
        file=io.StringIO(), force_terminal=True, width=160, height=20, soft_wrap=True, highlight=False
    )
    monkeypatch.setattr(output, "errors", terminal_console)
    monkeypatch.setattr(view, "errors", terminal_console)
    return terminal_console


LAST = progress(done=16, seconds_left=0.0)
FAILED = Row("trial 1", State.FAILED, 0, 0, None, 1.0, "no memory")
LINES = [
    (PRUNED, "[3/16] trial 2 PRUNED epoch 10/60 val/accuracy 0.4312  best 0.5310 (trial 0)  "
     "about 4m10s left  0.4 gpu-h left"),
    (ProgressEvent("close", row=FAILED, progress=progress()), "[3/16] trial 1 FAILED (no memory)"),
    (ProgressEvent("stage", progress=LAST), "search: 16 trainings"),
    (ProgressEvent("close", row=row(1), progress=LAST),
     "[16/16] trial 1 RUNNING epoch 3/60 val/accuracy 0.4312"),
]  # fmt: skip
"""Events and their lines, which leave out unknown values."""


@pytest.mark.parametrize(("event", "line"), LINES)
def test_an_event_is_one_line(event, line):
    assert event_text(event) == line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0m00s"), (59.6, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (100000, "27h46m")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_plain_lines_leave_out_rungs_that_come_too_fast():
    lines = []
    clock = Clock()
    listener = plain_lines(lines.append, clock)
    rung = ProgressEvent("rung", row=row(4), progress=progress(row(4)))
    listener(ProgressEvent("note", "taken over"))
    listener(rung)
    listener(ProgressEvent("begin", row=row(5, epoch=0, score=None), progress=progress(row(4), row(5))))
    listener(PRUNED)
    assert [line.split()[0] for line in lines] == ["taken", "[3/16]"]
    clock.now += PLAIN_EVERY
    listener(rung)
    listener(rung)
    assert lines[2:] == ["[3/16] trial 4 RUNNING epoch 3/60 val/accuracy 0.4312"]


def test_events_are_json_lines_on_standard_error(capsys):
    print_event(PRUNED)
    failed_row = row(1, State.FAILED, score=math.nan, reason="two\nlines")
    print_event(ProgressEvent("close", row=failed_row, progress=progress(row(0), seconds_left=math.inf)))
    out, err = capsys.readouterr()
    first, second = (json.loads(line) for line in err.splitlines())
    assert out == ""
    assert set(first) == {"kind", "text", "row", "progress"}
    assert (first["kind"], first["row"]["state"], first["row"]["score"]) == ("close", "PRUNED", 0.4312)
    assert first["progress"]["best"] == ["trial 0", 0.531]
    assert (second["row"]["score"], second["row"]["reason"]) == (None, "two\nlines")
    assert second["progress"]["seconds_left"] is None
    assert second["progress"]["running"][0]["label"] == "trial 0"


def drawn(*events, later=0.0, **size):
    """Returns the table that a terminal of some size shows `later` seconds after the events."""
    clock, plain_console = Clock(), Console(file=io.StringIO(), **{"width": 160, "height": 20, **size})
    with SweepTable(clock) as table:
        assert table.render() == ""
        for event in events:
            table(event)
        clock.now += later
        plain_console.print(table.render())
    return plain_console.file.getvalue()


def rung(*running, **how):
    return ProgressEvent("rung", row=row(0), progress=progress(*running, **how))


def test_the_live_table_has_what_runs_and_what_ended_last(console):
    rung_event = rung(row(3), row(4, score=None), best=("trial 0", 0.531), seconds_left=250.0)
    text = drawn(PRUNED, rung_event, later=5)
    # The time of running trials continues between events.
    for cells in (("trial 2", "PRUNED", "10/60", "1m01s"), ("trial 3", "RUNNING", "0.4312", "1m06s")):
        assert [line for line in text.splitlines() if all(cell in line for cell in cells)], text
    assert "3/16 done  2 running  best 0.5310 (trial 0)  about 4m10s left" in text
    assert "0.4 gpu-h" not in text
    confirmation = Progress("confirmation", 0, 6, "val/accuracy")
    text = drawn(PRUNED, ProgressEvent("stage", "confirmation: 6 trainings", progress=confirmation))
    assert ("trial 2" in text, "0/6 done  0 running" in text) == (False, True)


def test_notes_and_failures_stay_above_the_live_table(console):
    failure = ProgressEvent("close", row=row(1, State.FAILED, reason="[x] no memory"), progress=progress())
    drawn(ProgressEvent("note", "4 earlier trials fit"), PRUNED, failure)
    text = console.file.getvalue()
    assert "4 earlier trials fit" in text
    assert "[3/16] trial 1 FAILED epoch 3/60 val/accuracy 0.4312 ([x] no memory)" in text
    assert "[3/16] trial 2" not in text


def test_a_terminal_that_is_short_or_narrow_counts_rows_and_cuts_lines(console):
    text = drawn(rung(*(row(n) for n in range(40))))
    assert "40 running (28 not shown)" in text
    assert len(text.splitlines()) < console.height
    lines = drawn(rung(row(0), best=("trial 0 of a long name", 0.5), seconds_left=9.0), width=40).splitlines()
    assert len([line for line in lines if "done" in line or "left" in line]) == 1
    assert all(len(line) <= 40 for line in lines)


ENCODING = ProgressEvent(
    "encoding",
    "encoding: 200 of 1,000 rows, 100 a second, about 0m08s left",
    progress=Progress("encoding", 200, 1000, "", seconds_left=8.0),
)


def test_rows_that_are_encoded_are_a_line(console, monkeypatch):
    table = SweepTable()
    monkeypatch.setattr(table._live, "start", lambda: None)
    table(ENCODING)
    console.print(table.render())
    assert console.file.getvalue().splitlines() == [ENCODING.text]
    table(PRUNED)
    console.print(table.render())
    assert "trial 2" in console.file.getvalue()
    assert console.file.getvalue().count(ENCODING.text) == 1


def test_plain_lines_of_encoding_are_ten_seconds_apart():
    clock, lines = Clock(), []
    watch = plain_lines(lines.append, clock)
    for seconds in (2.0, 6.0, 4.0, 6.0):
        clock.now += seconds
        watch(ENCODING)
    assert lines == [ENCODING.text]


EVENTS = [
    Event("encoding", 0, 0, 200, 1000, note="encoding: 200 of 1,000 rows, 100 a second, about 0m08s left"),
    Event("start", 0, 2, 0, 4),
    Event("step", 0, 2, 1, 4),
    Event("step", 0, 2, 2, 4, {"train/loss": 1.5, "train/rows_per_second": 1234.0}),
    Event("validation", 1, 2, 2, 4, {"val/accuracy": 0.25}),
    Event("saving", 1, 2, 2, 4),
    Event("phase", 2, 2, 4, 4, note="test"),
    Event("end", 2, 2, 4, 4, {"test/accuracy": 0.5}),
]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_is_shown(monkeypatch, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160, soft_wrap=True, highlight=False)
    monkeypatch.setattr(output, "errors", console)
    monkeypatch.setattr(view, "errors", console)
    monkeypatch.setattr(view, "is_interactive", lambda: terminal)
    monkeypatch.setattr(api_progress, "PLAIN_EVERY", 0.0)
    with RunProgress() as run_progress:
        for event in EVENTS:
            run_progress(event)
            if run_progress._bar is not None:
                run_progress._bar.refresh()
    text = console.file.getvalue()
    for expected in ("epoch 1/2", "loss 1.5000", "1,234 rows/s", "val/accuracy 0.2500", "test"):
        assert expected in text
    if terminal:
        assert "200/1000 rows" in text
        assert "2/4 steps" in text
    else:
        assert EVENTS[0].note in text
        assert "\x1b" not in text
        assert "0m00s left" in text
