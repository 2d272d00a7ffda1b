"""Tests of the hosts, which can be cut off, and which end with the process that made them."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from nodes.hosts import Network
from patience import until

pytestmark = pytest.mark.slow

MAKE_AND_WAIT = """
import time
from nodes.hosts import Network
with Network() as network:
    spaces = [network.host(f"host{number}", number).space for number in (1, 2)]
    print(*(space.first for space in spaces), flush=True)
    time.sleep(1000)
"""


def heard(host, other):
    """Returns whether the other host answers; a refusal is an answer."""
    command = ["timeout", "1", "bash", "-c", f"exec 3<> /dev/tcp/{other.address}/9"]
    answer = subprocess.run(host.space.enter(command), capture_output=True, text=True, check=False)
    return "refused" in answer.stderr


def test_a_host_is_not_heard_while_it_is_cut_off():
    with Network() as network:
        host, other = network.host("one", 1), network.host("other", 2)
        assert heard(host, other)
        network.cut(other)
        assert not heard(host, other)
        assert not heard(other, host)
        assert other.run("hostname").strip() == "other"  # it still runs
        network.heal(other)
        assert heard(host, other)


def test_a_new_host_takes_the_place_of_a_killed_one():
    with Network() as network:
        host, other = network.host("one", 1), network.host("other", 2)
        other.kill()
        until(lambda: not heard(host, other))
        assert heard(host, network.host("other", 2))


@pytest.mark.parametrize("end", [psutil.Process.terminate, psutil.Process.kill])
def test_nothing_is_left_of_a_run_that_is_killed(end):
    folder = Path(__file__).parents[1]
    process = subprocess.Popen([sys.executable, "-c", MAKE_AND_WAIT], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        roots = [psutil.Process(int(number)) for number in out.readline().split()]
    assert len(roots) == 2
    family = [member for parent in roots for member in (parent, *parent.children(recursive=True))]
    end(psutil.Process(process.pid))
    process.wait()
    until(lambda: not any(member.is_running() for member in family))
    assert not any(Path(f"/proc/{member.pid}").exists() for member in roots)
