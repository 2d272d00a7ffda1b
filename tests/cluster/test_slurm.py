"""Tests what the Slurm script starts on each node, and what it leaves for every way in which it can end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE, until

SCRIPT = Path("cluster") / "slurm" / "mlcl.sbatch"
SHELLCHECK = shutil.which("shellcheck") or shutil.which("shellcheck", path=Path(sys.executable).parent)
JOB = 4000 + os.getpid() % 1000


class Allocation:
    """The script in an allocation of two nodes, with fakes for commands that record their calls."""

    def __init__(self, root: Path, folder: Path, **variables: str):
        self.root, self.home, self.scratch, self.log = (
            root,
            folder / "home",
            folder / "scratch",
            folder / "calls",
        )
        commands = folder / "venv" / "bin"
        commands.mkdir(parents=True)
        self.scratch.mkdir()
        self.log.touch()
        code = (Path(__file__).parent / "fake_commands.py").read_text()
        for name in ("scontrol", "srun", "ray", "mlcl", "ip", "getent"):
            (commands / name).write_text(f"#!{sys.executable}\n{code}")
            (commands / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "CALLS": str(self.log),
            "MLCL_HOME": str(self.home),
            "MLCL_VENV": str(folder / "venv"),
            "MLCL_SCRATCH": str(self.scratch),
            "SLURM_JOB_ID": str(JOB),
            "SLURM_JOB_NODELIST": "localhost,second",
            **variables,
        }

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", str(self.root / SCRIPT), *words], env=self.environment, text=True, stderr=-1
        )

    def end(self, *words: str) -> int:
        return self.start(*words).wait(PATIENCE)

    def calls(self, name: str) -> list[dict]:
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [call for call in calls if call["name"] == name]

    def left(self) -> list[Path]:
        return [*self.scratch.iterdir(), *self.home.glob("slurm/*.token")]


@pytest.fixture
def allocation(root, tmp_path):
    return Allocation(root, tmp_path)


@pytest.fixture(scope="module")
def ended(root, tmp_path_factory):
    """Returns an allocation whose command has ended by itself."""
    allocation = Allocation(root, tmp_path_factory.mktemp("allocation"))
    assert allocation.end("exit", "4", "a b") == 4
    return allocation


def options(call):
    words = call["words"]
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}


def test_every_node_is_started_with_its_own_address(ended):
    head, worker = sorted(ended.calls("ray"), key=lambda call: call["env"]["SLURMD_NODENAME"])
    port = 20000 + JOB % 1000 * 10
    assert "--head" in head["words"]
    assert options(head)["--port"] == str(port)
    assert "--head" not in worker["words"]
    assert options(worker)["--address"] == f"localhost:{port}"
    for call, address in ((head, "10.0.0.1"), (worker, "10.0.0.2")):
        assert options(call)["--node-ip-address"] == address
        assert options(call)["--num-cpus"] == "4"
        assert options(call)["--num-gpus"] == "1"
        assert call["env"]["GLOO_SOCKET_IFNAME"] == call["env"]["NCCL_SOCKET_IFNAME"] == "eth7"


def test_ports_are_the_jobs_own(ended):
    for call in ended.calls("ray"):
        ports = [int(value) for name, value in options(call).items() if name.endswith("port")]
        assert len(set(ports)) == len(ports) >= 6
        # The ports lie above those of Ray's workers and below the ones that Linux assigns.
        assert all(20000 <= port < 32768 for port in ports)


def test_the_command_gets_its_words_and_the_cluster(ended):
    (call,) = ended.calls("mlcl")
    assert call["words"] == ["exit", "4", "a b"]
    assert call["env"]["RAY_ADDRESS"] == f"10.0.0.1:{20000 + JOB % 1000 * 10}"
    assert call["env"]["MLCL_HOME"] == str(ended.home)
    assert ended.left() == []


def test_the_token_is_a_file_of_ones_own(allocation):
    process = allocation.start("wait")
    until(lambda: allocation.calls("mlcl"))
    (file,) = allocation.home.glob("slurm/*.token")
    token = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert token not in allocation.log.read_text()
    assert all(call["env"]["RAY_AUTH_MODE"] == "token" for call in allocation.calls("ray"))
    process.terminate()
    process.wait(PATIENCE)
    assert allocation.left() == []


@pytest.mark.parametrize(
    ("number", "again", "requeued"),
    [(signal.SIGTERM, "1", False), (signal.SIGUSR1, "", False), (signal.SIGUSR1, "1", True)],
)
def test_a_signal_reaches_the_command_and_nothing_is_left(root, tmp_path, number, again, requeued):
    allocation = Allocation(root, tmp_path, MLCL_REQUEUE=again)
    process = allocation.start("wait")
    until(lambda: allocation.calls("mlcl"))
    process.send_signal(number)
    assert process.wait(PATIENCE) == 130
    assert allocation.left() == []
    assert (["requeue", str(JOB)] in [call["words"] for call in allocation.calls("scontrol")]) == requeued


@pytest.mark.parametrize("broken", ["localhost", "second"])
def test_a_node_that_does_not_start_ends_the_job(root, tmp_path, broken):
    allocation = Allocation(root, tmp_path, BROKEN=broken)
    process = allocation.start("exit", "0")
    assert process.wait(PATIENCE) == 3
    assert "Ray did not start on all of localhost second" in process.stderr.read()
    assert allocation.calls("mlcl") == []
    assert allocation.left() == []


def test_a_job_that_is_stopped_while_it_starts_leaves_nothing(root, tmp_path):
    allocation = Allocation(root, tmp_path, SLOW="localhost")
    process = allocation.start("exit", "0")
    until(lambda: allocation.calls("srun"))
    process.terminate()
    assert process.wait(PATIENCE) == 130
    assert allocation.calls("mlcl") == []
    assert allocation.left() == []


def test_a_chosen_network_is_used(root, tmp_path):
    allocation = Allocation(root, tmp_path, MLCL_INTERFACE="ib0")
    assert allocation.end("exit", "0") == 0
    assert {call["env"]["NCCL_SOCKET_IFNAME"] for call in allocation.calls("ray")} == {"ib0"}
    assert {options(call)["--node-ip-address"] for call in allocation.calls("ray")} == {
        "10.0.0.1",
        "10.0.0.2",
    }


def test_without_a_command_nothing_is_started(allocation):
    process = allocation.start()
    assert process.wait(PATIENCE) == 2
    assert "usage: sbatch" in process.stderr.read()
    assert allocation.log.read_text() == ""


def test_bash_can_read_it(root):
    process = subprocess.run(["bash", "-n", str(root / SCRIPT)], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say(root):
    scripts = [
        root / SCRIPT,
        *sorted((root / "docker").rglob("*.sh")),
        *sorted((root / "cluster").rglob("*.sh")),
    ]
    process = subprocess.run([SHELLCHECK, *map(str, scripts)], capture_output=True, text=True, check=False)
    assert process.stdout == ""
    assert len(scripts) >= 7
