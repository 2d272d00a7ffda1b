"""A run's log as files: what is in it after kills and repeats."""

import json
import math
import multiprocessing
import subprocess
import sys

import pytest

from mlcl.errors import UserError
from mlcl.tracking import Provenance, RunLog, State, mlflow_listener
from mlcl.tracking.log import LOG, TEXTS, log_folder
from mlcl.training.events import Event


def entries(log, kind=None):
    lines = (log_folder(log.home, log.id) / LOG).read_text().splitlines()
    return [e for e in map(json.loads, lines) if kind in (None, e["kind"])]


def points(log):
    return [(name, e["step"], v) for e in entries(log, "metrics") for name, v in e["values"].items()]


def test_a_log_tells_how_it_began_and_what_became_of_it(logs):
    log = logs.start(owner="sweep", source=Provenance({"commit": "abc"}, "diff"), texts={"job.yaml": "x: 1"})
    log.metrics({"train/loss": 0.5}, 3)
    log.set_state(State.FAILED, "because")
    start, metrics, finish = entries(log)
    assert start["tags"] == {"commit": "abc", "mlcl.id": "run"}
    kept = {
        name: (log_folder(log.home, "run") / TEXTS / file).read_text()
        for name, file in start["texts"].items()
    }
    assert kept == {"job.yaml": "x: 1", "provenance/uncommitted.diff": "diff"}
    assert metrics["values"] == {"train/loss": 0.5}
    assert (finish["state"], finish["reason"]) == ("FAILED", "because")
    again = RunLog.attach(log.home, "run")
    assert (again.state, again.reason) == (State.FAILED, "because")
    assert (start["owner"], start["uri"]) == ("sweep", "sqlite:///HOME/mlflow.db")


def test_last_figures_are_bars_unless_they_have_a_curve(logs):
    log = logs.start()
    listen = mlflow_listener(log)
    listen(Event("validation", 1, 1, 3, 3, {"val/accuracy": 0.5}))
    for _ in range(2):  # a resumed run tells its end again
        listen(Event("end", 1, 1, 3, 3, {"val/accuracy": 0.5, "test/accuracy": 0.4}))
    assert sorted(points(log)) == [("epoch", 3, 1), ("test/accuracy", 0, 0.4), ("val/accuracy", 3, 0.5)]


def test_a_second_start_attaches(logs):
    logs.start().metrics({"loss": 1.0}, 1)
    log = logs.start(params={"other": "2"})
    assert [e["kind"] for e in entries(log)] == ["start", "metrics"]
    assert entries(log)[0]["params"] == {"a.b": "1"}


def test_a_log_that_is_not_there_cannot_be_attached(logs):
    with pytest.raises(UserError, match="all nodes share"):
        RunLog.attach(logs.home, "run")


def test_a_resumed_run_repeats_steps_and_doubles_no_point(logs):
    log = logs.start()
    for step in (1, 2, 3):
        log.metrics({"loss": float(step)}, step)
    again = RunLog.attach(log.home, "run")
    for step in (2, 3, 4):
        again.metrics({"loss": float(step), "new": 0.0}, step)
    assert [p for p in points(log) if p[0] == "loss"] == [("loss", s, float(s)) for s in (1, 2, 3, 4)]
    assert [p[1] for p in points(log) if p[0] == "new"] == [2, 3, 4]


def test_numbers_that_json_does_not_know(logs):
    log = logs.start()
    log.metrics({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.1}, 1)
    assert entries(log, "metrics")[0]["values"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 0.1}


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_cut_off_before_the_next_append(logs, kept):
    log = logs.start()
    log.metrics({"loss": 1.0}, 1)
    path = log_folder(log.home, "run") / LOG
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[1][:kept])
    again = RunLog.attach(log.home, "run")
    again.metrics({"loss": 2.0}, 2)
    assert points(again) == [("loss", 1, 1.0), ("loss", 2, 2.0)]


def test_a_log_whose_start_is_torn_is_started_anew(logs):
    log = logs.start()
    path = log_folder(log.home, "run") / LOG
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError):
        RunLog.attach(logs.home, "run")
    assert [e["kind"] for e in entries(logs.start())] == ["start"]


def write_many(home, name, count):
    log = RunLog.attach(home, "run")
    for step in range(count):
        log.metrics({name: 1.0}, step)


def test_two_processes_write_whole_lines(logs):
    log, count = logs.start(), 200
    spawn = multiprocessing.get_context("fork")
    writers = [spawn.Process(target=write_many, args=(logs.home, name, count)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert {p[:2] for p in points(log)} == {(name, step) for name in "ab" for step in range(count)}


def test_a_state_is_written_once_and_an_earlier_reason_is_replaced(logs):
    log = logs.start()
    for state, reason in (
        (State.RUNNING, ""), (State.STOPPED, "x"), (State.RUNNING, ""), (State.COMPLETE, "")
    ):  # fmt: skip
        log.set_state(state, reason)
        log.set_state(state, reason)
    RunLog.attach(logs.home, "run").set_state(State.COMPLETE)
    assert [(e["state"], e.get("reason")) for e in entries(log)[1:]] == [
        ("STOPPED", "x"), ("RUNNING", ""), ("COMPLETE", None)
    ]  # fmt: skip


def test_parameters_keep_their_first_value(logs):
    log = logs.start()
    log.params({"a.b": "2", "c": "3"})
    RunLog.attach(logs.home, "run").params({"c": "4"})
    assert [e["values"] for e in entries(log, "params")] == [{"c": "3"}]


def test_the_end_removes_a_text_that_a_killed_process_was_writing(logs):
    log = logs.start()
    log.text("note", "note.txt")
    texts = log_folder(log.home, "run") / TEXTS
    (texts / ".3da5c69d.d2012949.partial").write_text("no")
    RunLog.attach(logs.home, "run").set_state(State.STOPPED)
    assert [path.read_text() for path in texts.iterdir()] == ["note"]


def test_a_full_disk_leaves_a_log_that_can_be_gone_on_with(logs, monkeypatch):
    import os

    log, write = logs.start(), os.write

    def full(descriptor, data):
        write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        log.metrics({"loss": 1.0}, 1)
    monkeypatch.undo()
    log.metrics({"loss": 1.0}, 1)
    assert points(log) == [("loss", 1, 1.0)]


def test_the_listener_logs_what_an_event_carries(logs):
    listen = mlflow_listener(log := logs.start())
    listen(Event("step", 0, 2, 1, 4))
    listen(Event("step", 0, 2, 2, 4, {"train/loss": 1.0}))
    listen(Event("saving", 1, 2, 2, 4))
    assert points(log) == [("train/loss", 2, 1.0), ("epoch", 2, 0.0)]


def test_a_password_is_not_written_down(logs):
    log = logs.start(uri="https://me:secret@host/x")
    assert entries(log)[0]["uri"] == "https://me:***@host/x"
    assert "secret" not in (log_folder(log.home, "run") / LOG).read_text()


def test_who_only_writes_logs_does_not_import_mlflow():
    modules = "mlcl.tracking, mlcl.service.ray.ddp_group, mlcl.store"
    code = f"import sys, {modules}; sys.exit(any(m.split('.')[0] == 'mlflow' for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
