"""Tests of background processes, which are ended with their children, and of the ports that they use."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from patience import until

from mlcl.errors import UserError
from mlcl.service.local.processes import (
    Process,
    check_free,
    end_processes,
    free_port,
    process_tree,
    public_listeners,
    record_tree,
    start_process,
)

PARENT = """import subprocess, time
subprocess.Popen(["sleep", "1000"])
print("here", flush=True)
time.sleep(1000)"""
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {PARENT}"


def run(folder, code=PARENT):
    """Starts a process with a child and returns it."""
    process = start_process([sys.executable, "-c", code], dict(os.environ), folder / "log")
    until(lambda: (folder / "log").read_text() == "here\n")
    return process


def lives(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_process_has_a_session_and_a_private_log(tmp_path):
    process = run(tmp_path)
    try:
        assert os.getsid(process.pid) == process.pid
        assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
        assert psutil.Process(process.pid).cwd() == str(tmp_path)
    finally:
        end_processes([process])


@pytest.mark.parametrize("code", [PARENT, DEAF])
def test_a_family_is_ended(tmp_path, code):
    process = run(tmp_path, code)
    pids = [member.pid for member in process_tree([process])]
    assert len(pids) == 2
    assert end_processes([process], grace=0.5) == 2
    assert not any(lives(pid) for pid in pids)


def test_children_are_found_when_their_parent_is_gone(tmp_path):
    process = run(tmp_path)
    processes = record_tree([process])
    assert processes[0] == process
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.find() is None)
    (child,) = process_tree(processes)
    assert record_tree(processes) == (process, Process(child.pid, child.create_time()))
    assert end_processes(processes) == 1
    assert not lives(child.pid)


def test_a_number_that_the_system_gave_again_is_a_stranger():
    with subprocess.Popen(["sleep", "1000"]) as process:
        created = psutil.Process(process.pid).create_time()
        old = Process(process.pid, created - 3600)
        assert (old.find(), process_tree([old]), end_processes([old])) == (None, [], 0)
        assert Process(process.pid, created).find() is not None
        assert process.poll() is None
        process.kill()


def listen(address, family=socket.AF_INET):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, 0))
    server.listen()
    return server


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_owner_of_a_taken_port_is_named(address):
    with listen(address) as server:
        with pytest.raises(UserError, match=rf"port .* is taken.*pid {os.getpid()}") as error:
            check_free("--ray-port", server.getsockname()[1])
        assert error.value.key == "--ray-port"


def test_a_port_with_closed_connections_is_free():
    with listen("127.0.0.1") as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            connection, _ = server.accept()
            connection.close()
            client.recv(1)
    check_free("--ray-port", port)
    assert free_port() != port


def test_only_listeners_that_others_can_reach_are_named():
    processes = [psutil.Process()]
    before = public_listeners(processes)
    with listen("127.0.0.1"), listen("::ffff:127.0.0.1", socket.AF_INET6), listen("0.0.0.0") as server:
        new_listeners = set(public_listeners(processes)) - set(before)
        assert new_listeners == {f"{processes[0].name()} 0.0.0.0:{server.getsockname()[1]}"}
