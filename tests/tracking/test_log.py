"""Tests of a run's log files: their contents after kills and repetitions, and the entries of events."""

import json
import math
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch
from builders import tiny_job

from mlcl.errors import UserError
from mlcl.tracking import Provenance, RunLog, State, mlflow_listener, params_of
from mlcl.tracking.log import LOG, TEXTS, log_folder, system_metrics
from mlcl.training.events import Event


def entries(log, kind=None):
    lines = (log_folder(log.home, log.id) / LOG).read_text().splitlines()
    return [e for e in map(json.loads, lines) if kind in (None, e["kind"])]


def points(log):
    return [
        (name, entry["step"], value)
        for entry in entries(log, "metrics")
        for name, value in entry["values"].items()
    ]


def test_a_log_tells_how_it_began_and_what_became_of_it(logs):
    source = Provenance({"commit": "abc"}, "diff")
    log = logs.start(owner="sweep", uri="https://me:secret@host/x", source=source, texts={"job.yaml": "x: 1"})
    log.log_metrics({"train/loss": 0.5, "a": math.nan, "b": math.inf, "c": -math.inf}, 3)
    log.set_state(State.FAILED, "because")
    start, metrics, state = entries(log)
    assert (start["owner"], start["uri"]) == ("sweep", "https://me:***@host/x")
    assert start["tags"] == {"commit": "abc", "mlcl.id": "run"}
    folder = log_folder(log.home, "run") / TEXTS
    assert {name: (folder / file).read_text() for name, file in start["texts"].items()} == {
        "job.yaml": "x: 1", "provenance/uncommitted.diff": "diff"
    }  # fmt: skip
    assert metrics["values"] == {"train/loss": 0.5, "a": "nan", "b": "inf", "c": "-inf"}
    assert (state["state"], state["reason"]) == ("FAILED", "because")
    attached_log = RunLog.attach(log.home, "run")
    assert (attached_log.state, attached_log.reason) == (State.FAILED, "because")


def test_a_resumed_run_keeps_its_parameters_repeats_steps_and_doubles_no_point(logs):
    logs.start().log_params({"a.b": "2", "c": "3"})
    log = logs.start(params={"other": "2"})
    log.log_params({"c": "4"})
    start, params = entries(log)
    assert (start["params"], params["values"]) == ({"a.b": "1"}, {"c": "3"})
    for step in (1, 2, 3):
        log.log_metrics({"loss": float(step)}, step)
    attached_log = RunLog.attach(log.home, "run")
    for step in (2, 3, 4):
        attached_log.log_metrics({"loss": float(step), "new": 0.0}, step)
    loss, new = [("loss", s, float(s)) for s in (1, 2, 3, 4)], [("new", s, 0.0) for s in (2, 3, 4)]
    assert sorted(points(log)) == loss + new


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_is_cut_off_before_the_next_append(logs, kept):
    log = logs.start()
    log.log_metrics({"loss": 1.0}, 1)
    path = log_folder(log.home, "run") / LOG
    content = path.read_bytes()
    path.write_bytes(content + content.splitlines(keepends=True)[1][:kept])
    attached_log = RunLog.attach(log.home, "run")
    attached_log.log_metrics({"loss": 2.0}, 2)
    assert points(attached_log) == [("loss", 1, 1.0), ("loss", 2, 2.0)]


def test_a_log_whose_start_is_torn_is_started_anew(logs):
    log = logs.start()
    path = log_folder(log.home, "run") / LOG
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="all nodes share"):
        RunLog.attach(logs.home, "run")
    assert [e["kind"] for e in entries(logs.start())] == ["start"]


def write_many(home, name, count):
    log = RunLog.attach(home, "run")
    for step in range(count):
        log.log_metrics({name: 1.0}, step)


def test_two_processes_write_whole_lines(logs):
    """Tests two writers of one log, as when the workers of a lost node still run for a while."""
    log, count = logs.start(), 200
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_many, args=(logs.home, name, count)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert {p[:2] for p in points(log)} == {(name, step) for name in "ab" for step in range(count)}


def test_a_state_is_written_once_and_the_end_removes_half_a_text_of_a_killed_process(logs):
    log = logs.start()
    log.log_text("note", "note.txt")
    texts = log_folder(log.home, "run") / TEXTS
    (texts / ".3da5c69d.d2012949.partial").write_text("no")
    for state, reason in [
        (State.RUNNING, ""),
        (State.STOPPED, "x"),
        (State.RUNNING, ""),
        (State.COMPLETE, ""),
    ]:
        log.set_state(state, reason)
        log.set_state(state, reason)
    RunLog.attach(logs.home, "run").set_state(State.COMPLETE)
    states = [(e["state"], e.get("reason")) for e in entries(log, "state")]
    assert states == [("STOPPED", "x"), ("RUNNING", ""), ("COMPLETE", None)]  # the earlier reason is cleared
    assert [path.read_text() for path in texts.iterdir()] == ["note"]


def test_a_full_disk_leaves_a_log_that_can_be_gone_on_with(logs, monkeypatch):
    log, write = logs.start(), os.write

    def full(descriptor, data):
        write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            log.log_metrics({"loss": 1.0}, 1)
    log.log_metrics({"loss": 1.0}, 1)
    assert points(log) == [("loss", 1, 1.0)]


OF_PROCESSOR = {
    "system/cpu_utilization_percentage",
    "system/system_memory_usage_megabytes",
    "system/system_memory_usage_percentage",
}


def test_the_listener_logs_what_an_event_carries_with_load_and_memory_where_asked(logs, tmp_path):
    plain_log, system_log = logs.start("plain"), logs.start("watched")
    for listener in (mlflow_listener(plain_log), mlflow_listener(system_log, system=True)):
        listener(Event("step", 0, 1, 1, 3))
        listener(Event("validation", 1, 1, 3, 3, {"val/accuracy": 0.5}))
        listener(Event("saving", 1, 1, 3, 3))
        for _ in range(2):  # a resumed run sends its end again; metrics without a curve are at step 0
            listener(Event("end", 1, 1, 3, 3, {"val/accuracy": 0.5, "test/accuracy": 0.4}))
    expected = [("val/accuracy", 3, 0.5), ("epoch", 3, 1.0), ("test/accuracy", 0, 0.4)]
    assert (
        points(plain_log) == [point for point in points(system_log) if "system/" not in point[0]] == expected
    )
    system = {(name, step) for name, step, _ in points(system_log) if "system/" in name}
    assert system == {(name, 3) for name in OF_PROCESSOR}
    job = tiny_job(tmp_path, "tracking.system_metrics=true")
    assert params_of(job) == params_of(tiny_job(tmp_path))


def test_the_last_point_is_the_final_figure_whatever_the_last_epoch_had(logs):
    """Tests an end after early stopping, which a resumed run sends again without repeating a point."""
    for _ in range(2):
        listener = mlflow_listener(logs.start())
        for epoch, value in enumerate((0.5, 0.7, 0.6), start=1):
            listener(Event("validation", epoch, 3, 10 * epoch, 30, {"val/accuracy": value, "val/f1": value}))
        metrics = {"val/accuracy": 0.7, "val/f1": 0.6, "val/map": math.nan, "best/epoch": 2.0}
        listener(Event("end", 3, 3, 30, 30, metrics))
    log_points = points(logs.start())
    assert [(step, value) for name, step, value in log_points if name == "val/accuracy"] == [
        (10, 0.5), (20, 0.7), (30, 0.6), (31, 0.7)
    ]  # fmt: skip
    assert [step for name, step, _ in log_points if name in ("val/f1", "epoch")] == [10, 10, 20, 20, 30, 30]
    assert [point for point in log_points if point[1] == 0] == [("val/map", 0, "nan"), ("best/epoch", 0, 2.0)]


@pytest.mark.parametrize(("final", "expected"), [(0, 1), (30, 30)])
def test_a_bar_with_another_value_becomes_a_curve_that_ends_with_the_final_one(logs, final, expected):
    for value in (0.4, 0.6, 0.6):  # the run was extended, and then its end was sent twice
        logs.start().log_final_metrics({"test/accuracy": value}, 0 if value == 0.4 else final)
    assert points(logs.start()) == [("test/accuracy", 0, 0.4), ("test/accuracy", expected, 0.6)]


def test_a_gpus_memory_is_that_of_the_device_in_use(monkeypatch):
    def absent(_device):
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    values = {
        "is_available": True,
        "is_initialized": True,
        "current_device": 1,
        "mem_get_info": (2**20, 2**22),
    }
    for name, value in values.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for load, names in ((lambda _: 70, {"system/gpu_1_utilization_percentage"}), (absent, set())):
        monkeypatch.setattr(torch.cuda, "utilization", load)
        metrics = system_metrics()
        assert metrics["system/gpu_1_memory_usage_megabytes"] == 3
        assert metrics["system/gpu_1_memory_usage_percentage"] == pytest.approx(75)
        memory = {f"system/gpu_1_memory_usage_{unit}" for unit in ("megabytes", "percentage")}
        assert metrics.keys() == OF_PROCESSOR | memory | names


def test_who_only_writes_logs_does_not_import_mlflow():
    modules = "mlcl.tracking, mlcl.service.ray.ddp_group, mlcl.store"
    code = f"import sys, {modules}; sys.exit(any(m.split('.')[0] == 'mlflow' for m in sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
