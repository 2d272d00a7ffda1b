"""Services of a cluster, each on a host of its own: Redis, PostgreSQL, and an MLflow server on PostgreSQL."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from databases import PASSWORD, USER, postgres_folder
from nodes.cluster import Cluster
from nodes.hosts import RANGE, Host
from patience import until

REDIS, DATABASE, MLFLOW = 50, 60, 70
"""The numbers in the addresses of the hosts."""


def answers(host: Host, port: int) -> bool:
    """Returns whether a program listens on a port of the host's own address."""
    command = host.space.enter(["bash", "-c", f"exec 3<> /dev/tcp/{host.address}/{port}"])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def redis(cluster: Cluster) -> dict[str, str]:
    """Starts Redis with a password; returns the variables with which Ray's head keeps its state there."""
    host, word = cluster.network.host("redis", REDIS), secrets.token_hex(16)
    config = cluster.folder / "redis.conf"
    config.touch(mode=0o600)
    config.write_text(f"bind {host.address}\nport 6379\nrequirepass {word}\ndir {cluster.scratch}\n")
    _start(cluster, host, "redis-server", str(config))
    until(lambda: answers(host, 6379))
    return {"RAY_REDIS_ADDRESS": f"{host.address}:6379", "REDIS_PASSWORD": word}


class Store:
    """An MLflow server on PostgreSQL: two hosts, which may be killed and started again on the same data."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = cluster.scratch / "postgres"
        self._initialise()
        self.server = f"http://{RANGE}.{MLFLOW}:5000"
        self.direct = f"postgresql+psycopg://{USER}:{PASSWORD}@/postgres?host={self._folder}"
        """The URI for processes that see the files, without a network."""
        self.start()

    def start(self) -> None:
        """Starts both hosts; returns when they answer."""
        self._database = self._cluster.network.host("database", DATABASE)
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)  # of the earlier host
        options = ["-c", f"listen_addresses={self._database.address}"]
        options += ["-c", f"unix_socket_directories={self._folder}"]
        program = str(_programs() / "postgres")
        _start(self._cluster, self._database, *_AS_NOBODY, program, "-D", f"{self._folder}/data", *options)
        until(lambda: answers(self._database, 5432))
        self._mlflow = self._cluster.network.host("mlflow", MLFLOW)
        address = f"{self._database.address}:5432/postgres"
        command = [sys.executable, "-m", "mlflow", "server", "--host", self._mlflow.address, "--workers", "1"]
        command += [
            "--no-serve-artifacts",
            "--default-artifact-root",
            str(self._cluster.folder / "artifacts"),
        ]
        _start(
            self._cluster,
            self._mlflow,
            *command,
            # MLflow's check of host names allows private addresses, but not with this port.
            MLFLOW_SERVER_ALLOWED_HOSTS=f"{self._mlflow.address}:5000",
            MLFLOW_BACKEND_STORE_URI=f"postgresql+psycopg://{USER}:{PASSWORD}@{address}",
            MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false",
        )
        until(lambda: answers(self._mlflow, 5000), every=0.5)

    def kill(self) -> None:
        """Kills both hosts."""
        self._mlflow.kill()
        self._database.kill()

    def _initialise(self) -> None:
        """Creates an empty database as the user nobody, since PostgreSQL refuses to run as root."""
        self._folder.mkdir()
        self._cluster.scratch.chmod(0o711)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        for path in (self._folder, password):
            shutil.chown(path, "nobody")
        login = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={password}", "-E", "UTF8"]
        command = [*_AS_NOBODY, str(_programs() / "initdb"), "-D", f"{self._folder}/data", *login]
        subprocess.run(command, check=True, cwd="/", capture_output=True)
        with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {RANGE}.0/24 scram-sha-256\n")


_AS_NOBODY = ("setpriv", "--reuid=nobody", "--clear-groups")


def _programs() -> Path:
    folder = postgres_folder()
    assert folder is not None, "PostgreSQL is not installed"
    return folder


def _start(cluster: Cluster, host: Host, *command: str, **environment: str) -> None:
    with (cluster.folder / f"{host.name}.log").open("ab") as log:
        host.start(command, Path("/"), {**os.environ, **environment}, log, log)
