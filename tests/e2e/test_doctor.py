"""Tests that the doctor leaves running commands alone, and closes killed ones in every store."""

import os
import signal

import psutil
import pytest
import yaml
from doctored import look, statuses
from patience import until


@pytest.fixture
def doctor(mlcl, monkeypatch):
    """Returns a function that runs `mlcl doctor` with Ray's folder set, so that it finds no other Ray."""

    def call(*options):
        with monkeypatch.context() as patch:
            patch.setenv("RAY_TMPDIR", str(mlcl.folder))
            return mlcl("doctor", "--json", *options)

    return call


def found(answer):
    return {
        finding["check"]: finding["status"]
        for finding in answer.json["findings"]
        if finding["check"] != "disk"
    }


def rest(home):
    return [result for result in look(home.resolve()) if result.check not in ("disk", "ray-file")]


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.answer()


@pytest.mark.slow
def test_a_killed_run_is_found_and_closed(mlcl, doctor):
    process = mlcl.start("run", mlcl.job, "train.epochs=100000")
    until(lambda: list(mlcl.home.glob("runs/*/checkpoint.pt")))
    running_answer = doctor("--fix")
    assert set(found(running_answer)) <= {"delivery"}, running_answer.out
    assert set(found(running_answer).values()) <= {"NOTE"}
    assert psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE
    kill(process)

    assert "killed" in {result.check for result in rest(mlcl.home)}
    fix_answer = doctor("--fix")
    assert found(fix_answer)["killed"] == "MENDED", fix_answer.out
    assert set(found(fix_answer).values()) == {"MENDED"}
    assert rest(mlcl.home) == []
    (run,) = mlcl.runs()
    assert (run.info.status, run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")


@pytest.mark.slow
def test_a_killed_sweep_is_mended_and_goes_on(mlcl, doctor):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump({"space": {"train.lr": {"log_float": [0.005, 0.05]}}}))
    sweep = ("sweep", mlcl.job, space, "--trials", "3", "train.epochs=300")
    process = mlcl.start(*sweep)
    until(lambda: list(mlcl.home.glob("sweeps/*/trials/*/checkpoint.pt")))
    kill(process)

    assert {"killed", "leftovers"} <= {result.check for result in rest(mlcl.home)}
    fix_answer = doctor("--fix")
    assert set(found(fix_answer).values()) == {"MENDED"}, fix_answer.out
    assert {run.info.status for run in mlcl.runs()} == {"KILLED"}
    assert set(statuses(rest(mlcl.home))) <= {"NOTE"}
    after = mlcl(*sweep, "--json")
    assert (after.status, after.json["state"]) == (0, "COMPLETE"), after.err
    assert rest(mlcl.home) == []
