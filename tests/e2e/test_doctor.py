"""A run that is killed: the doctor lets it live before, and closes it everywhere after."""

import os
import signal
import time

import pytest


@pytest.fixture
def lonely(monkeypatch, tmp_path):
    """No Ray of the machine's is looked at."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))


def until(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def states(answer):
    return {f["check"]: f["status"] for f in answer.json["findings"] if f["check"] != "disk"}


def test_a_killed_run_is_found_and_closed(mlcl, lonely):
    process = mlcl.start("run", mlcl.job, "train.epochs=100000")
    until(lambda: list(mlcl.home.glob("runs/*/checkpoint.pt")), process)
    living = mlcl("doctor", "--fix", "--json")
    assert set(states(living)) <= {"delivery"}, living.out
    assert set(states(living).values()) <= {"NOTE"}
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    found = mlcl("doctor", "--json")
    assert (found.status, states(found)["killed"]) == (3, "FOUND"), found.err
    mended = mlcl("doctor", "--fix", "--json")
    assert states(mended)["killed"] == "MENDED", mended.out
    assert set(states(mended).values()) == {"MENDED"}
    assert states(mlcl("doctor", "--json")) == {}
    (run,) = mlcl.runs()
    assert (run.info.status, run.data.tags["mlcl.state"]) == ("KILLED", "STOPPED")
