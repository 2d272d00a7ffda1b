"""A Ray cluster on separate hosts, with a token, on which mlcl's commands run."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from nodes.hosts import RANGE, Host, Network
from patience import until
from typing_extensions import Self

CLONE = Path(__file__).resolve().parents[2]
PORT = 6379
HEAD = 1
"""The number in the address of the head."""
QUICK = {
    # Ray counts a node as lost after some 20 seconds without an answer, not after a minute.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Hosts share the machine's memory, which each would count as its own.
    "RAY_memory_monitor_refresh_ms": "0",
}
RAY = """
import os, sys
from ray.scripts.scripts import main
if "REDIS_PASSWORD" in os.environ:
    sys.argv.append("--redis-password=" + os.environ["REDIS_PASSWORD"])
main()
"""
"""A script for Ray's command that adds the password inside the process, where it is not visible."""
STORE = 100_000_000
"""The bytes of a node's object store, into which nothing large goes."""


class Cluster:
    """A network of hosts that run Ray and all see `folder`; `with` ends everything."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.network = Network()
        self.token = folder / "ray.token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(16))
        self.environment = {
            **os.environ,
            **QUICK,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "PYTHONPATH": str(CLONE),
            **environment,
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Ray makes sockets in this folder, whose paths must be short.
            self.scratch = Path(tempfile.mkdtemp(prefix="mlcl-nodes-"))
            stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            stack.enter_context(self.network)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def head(self, cpus: int = 0, **environment: str) -> Host:
        """Starts a host with Ray's head, new or in place of a killed one; returns when the head answers."""
        host = self.network.host("head", HEAD)
        self._ray(host, cpus, ["--head", f"--port={PORT}", "--dashboard-host=127.0.0.1"], environment)
        return host

    def worker(self, number: int, cpus: int = 1, **environment: str) -> Host:
        """Starts a host with a Ray node; returns when the node has joined."""
        host = self.network.host(f"worker{number}", HEAD + number)
        self.join(host, cpus, **environment)
        return host

    def join(self, host: Host, cpus: int = 1, **environment: str) -> None:
        """Starts Ray on a host whose Ray has ended."""
        self._ray(host, cpus, [f"--address={self.address}"], environment)

    @property
    def address(self) -> str:
        """The address at which nodes and commands find the head."""
        return f"{RANGE}.{HEAD}:{PORT}"

    def _ray(
        self, host: Host, cpus: int, options: list[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        log = self.folder / f"{host.name}-{secrets.token_hex(2)}.log"
        command = [sys.executable, "-c", RAY, "start", "--block", *options]
        command += [
            f"--node-ip-address={host.address}",
            f"--num-cpus={cpus}",
            f"--object-store-memory={STORE}",
        ]
        command += [f"--temp-dir={self.scratch / log.stem}"]
        with log.open("wb") as out:
            process = host.start(command, self.folder, {**self.environment, **environment}, out, out)
        until(lambda: process.poll() is not None or "Ray runtime started" in log.read_text(), every=0.2)
        assert process.poll() is None, log.read_text()[-3000:]
        return process

    def command(self, host: Host, folder: Path, *words: str) -> subprocess.Popen[bytes]:
        """Starts an `mlcl` command on a host; it prints to `out.json` and adds to `err.txt` in its folder."""
        command = [sys.executable, "-m", "mlcl", *words]
        environment = {**self.environment, "RAY_ADDRESS": self.address}
        with (folder / "out.json").open("wb") as out, (folder / "err.txt").open("ab") as err:
            return host.start(command, folder, environment, out, err)
