"""The MLflow server as `mlcl up` starts it, and the points that its database holds."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from mlcl.service.local.processes import end_processes, free_port, process_tree, start_process
from mlcl.service.local.servers import Server, mlflow_server
from mlcl.service.local.settings import ServiceFolder, Settings, check_storage, read_secret, store_uri

Points = Counter[tuple[str, int, float]]
"""The number of times that a store has a metric's value at a step."""
PATIENCE = 300.0
"""The seconds that the server may take to answer."""


class TrackingServer:
    """A running server; everything logged to it passes its authentication into `store`."""

    def __init__(self, home: Path, store: str, server: Server, members: list[psutil.Process]) -> None:
        self.home, self.uri = home, server.address
        self._store, self._members = store, members

    def points(self, run: str) -> Points:
        """Returns all points of a run, read from the database itself."""
        engine = create_engine(self._store)
        try:
            with engine.connect() as connection:
                query = text("SELECT key, step, value FROM metrics WHERE run_uuid = :run")
                return Counter(
                    (key, int(step), float(value))
                    for key, step, value in connection.execute(query, {"run": run})
                )
        finally:
            engine.dispose()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Suspends the server: it accepts connections and does not answer, which is worse than a refusal."""
        try:
            for member in self._members:
                member.suspend()
            yield
        finally:
            for member in self._members:
                member.resume()


@contextmanager
def tracking_server(home: Path, store: str) -> Iterator[TrackingServer]:
    """Starts a new server and stops it afterwards; sets the environment that MLflow's client needs."""
    folder = ServiceFolder(home)
    folder.make()
    settings = Settings(store_uri(store, folder), str(home / "artifacts"), mlflow_port=free_port())
    check_storage(settings)
    server = mlflow_server(settings, folder)
    server.prepare()
    process = start_process(server.command, server.environment, server.log)
    try:
        deadline = time.monotonic() + PATIENCE
        while problem := server.problem():
            if not problem.passing or process.find() is None or time.monotonic() > deadline:
                raise RuntimeError(f"MLflow {problem.what}; see {server.log}")
            time.sleep(0.2)
        os.environ["MLFLOW_TRACKING_URI"] = server.address
        os.environ["MLFLOW_TRACKING_USERNAME"] = read_secret(folder.mlflow_user)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = read_secret(folder.mlflow_password)
        yield TrackingServer(home, settings.store, server, process_tree([process]))
    finally:
        end_processes([process])
