"""Hosts on one machine, each with its own network, processes and name, and all with the same files.

A host is the first process of its own namespaces, and so is a switch. The kernel ends everything in a
namespace with its first process, and ends the latter with the process that started it, so that a test leaves
nothing behind. The networks of the machine are not touched, so that several runs do not disturb each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from typing_extensions import Self

PROGRAMS = ("ip", "nsenter", "unshare", "setpriv", "bash")
KINDS = ("--net", "--pid", "--mount", "--uts")
RANGE = "10.77.0"
"""The addresses inside the namespaces, which cannot be reached from outside."""


def missing() -> str:
    """Returns the reason why there can be no hosts on this machine, which is empty if there can be."""
    missing_programs = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing_programs:
        return f"needs {', '.join(missing_programs)}"
    if os.getuid() != 0:
        return "needs root, for namespaces"
    process = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return "" if process.returncode == 0 else f"no namespaces here: {process.stderr.decode().strip()}"


class Space:
    """A set of new namespaces, which last as long as their first process."""

    def __init__(self) -> None:
        # As the first process of its namespace, bash also reaps processes that have ended.
        wait_command = ["bash", "-c", "sleep infinity & echo ready; wait"]
        unshare = ["setpriv", "--pdeathsig=KILL", "unshare", *KINDS, "--mount-proc", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            [*unshare, *wait_command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "no namespaces"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.first = int(children.read_text())

    def enter(self, command: Sequence[str], kinds: Sequence[str] = KINDS) -> list[str]:
        """Returns the words that run a command inside the namespaces."""
        return ["nsenter", f"--target={self.first}", *kinds, *command]

    def run(self, *command: str, kinds: Sequence[str] = KINDS) -> str:
        """Runs a command inside the namespaces and returns its output; fails if the command fails."""
        answer = subprocess.run(self.enter(command, kinds), capture_output=True, text=True, check=False)
        assert answer.returncode == 0, f"{' '.join(command)}: {answer.stderr}"
        return answer.stdout

    def kill(self) -> None:
        """Kills all processes inside at once; the kernel closes their connections."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Host:
    """A machine that shares only its files with others, and runs until it is killed."""

    def __init__(self, space: Space, name: str, address: str) -> None:
        self.space, self.name, self.address = space, name, address
        self._started: list[subprocess.Popen[bytes]] = []
        self.run("hostname", name)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str) -> str:
        """Runs a command on the host and returns its output; fails if the command fails."""
        return self.space.run(*command)

    def start(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        out: IO[bytes],
        err: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        """Starts a command in a folder; its output goes to files, since survivors would keep pipes open."""
        process = subprocess.Popen(
            self.space.enter(["env", f"--chdir={folder}", *command]),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def kill(self) -> None:
        """Kills all processes on the host, which cannot be started again."""
        self.space.kill()
        for process in self._started:
            process.wait()


class Network:
    """A switch with hosts; `with` removes all of them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._switch = Space()
            stack.callback(self._switch.kill)
            self._ip("link", "add", "switch", "type", "bridge")
            self._ip("link", "set", "switch", "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def host(self, name: str, number: int) -> Host:
        """Adds a host with the address of that number, whose earlier host must have been killed."""
        space = Space()
        self._stack.callback(space.kill)
        host = Host(space, name, f"{RANGE}.{number}")
        port = f"port{number}"
        # The hardware address stays the same, as other hosts remember it.
        card = ("name", "eth0", "address", f"02:00:00:00:00:{number:02x}", "netns", str(space.first))
        with suppress(AssertionError):
            self._ip("link", "delete", port)  # of the earlier host, if the kernel still has it
        self._ip("link", "add", port, "type", "veth", "peer", *card)
        self._ip("link", "set", port, "master", "switch", "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
        self._hosts[port] = host
        return host

    def cut(self, host: Host) -> None:
        """Cuts the host off: nothing reaches or leaves it, and no connection is closed."""
        self._ip("link", "set", self._port(host), "nomaster")

    def heal(self, host: Host) -> None:
        """Connects the host again."""
        self._ip("link", "set", self._port(host), "master", "switch")

    def _ip(self, *words: str) -> None:
        """Runs `ip` in the network of the switch only, since it gets process ids of the machine."""
        self._switch.run("ip", *words, kinds=["--net"])

    def _port(self, host: Host) -> str:
        return next(port for port, other in self._hosts.items() if other is host)
