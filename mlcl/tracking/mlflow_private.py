"""All uses of MLflow's private interfaces. They are tested with the versions in `TESTED` only.

Two other modules also depend on MLflow's version: `shared_view.py`, which writes views of MLflow's pages, and
`mlcl/results/stores.py`, which reads MLflow's SQLite file without MLflow.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from filelock import FileLock

from mlcl.tracking.uri import sqlite_file

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

LOCK = ".tracking.lock"
"""The name of the lock file, see `store_lock`."""
TESTED = ">=3.16,<3.18"
"""The versions of MLflow that the tests ran with; `mlcl doctor` notes any other version.

Before 3.16 a point that is NaN could not be sent twice, which a delivery after a kill may do.
"""
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""The (table, column) pairs of MLflow's database that have addresses of artifacts."""
HOME_TABLE = "mlcl_home"
"""The table that mlcl adds to the store, with the address of its home; a tag could be changed by users."""


def store_lock(uri: str, home: Path) -> FileLock:
    """Returns the lock to hold while a store is opened, so that only one command at a time makes its tables.

    The lock file is in the home. For a new SQLite file it is in the file's folder, since several homes may
    share a store outside of them.
    """
    file = sqlite_file(uri)
    return FileLock((home if file is None or not _is_new(file) else file.parent) / LOCK)


def _is_new(file: Path) -> bool:
    return not file.exists() or not file.stat().st_size  # `check_sqlite` makes an empty file


def make_tables(file: Path | None, artifacts: str) -> None:
    """Creates the SQLite file of a store, if it is new, atomically, since MLflow refuses a partial file."""
    if file is None or not _is_new(file):
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for leftover in file.parent.glob(f".{file.name}.*.partial*"):
        leftover.unlink()
    # MLflow caches stores by the name of the file: within a process each name must be a new one.
    partial = file.with_name(f".{file.name}.{uuid4().hex}.partial")
    SqlAlchemyStore(f"sqlite:///{partial}", artifacts)
    partial.replace(file)


def relocate_artifacts(uri: str, home: Path) -> None:
    """Corrects the absolute artifact addresses in the SQLite file of a home that was moved."""
    file, address = sqlite_file(uri), home.as_uri()
    if file is None or not file.is_relative_to(home) or not file.is_file() or not file.stat().st_size:
        return
    with closing(sqlite3.connect(file, timeout=60)) as store, store:
        tables = {name for (name,) in store.execute("SELECT name FROM sqlite_master")}
        if not {table for table, _ in COLUMNS} <= tables:
            return
        stored = (
            store.execute(f"SELECT address FROM {HOME_TABLE}").fetchone() if HOME_TABLE in tables else None
        )
        if stored is None:
            store.execute(f"CREATE TABLE IF NOT EXISTS {HOME_TABLE} (address TEXT NOT NULL)")
            store.execute(f"INSERT INTO {HOME_TABLE} VALUES (?)", (address,))
        elif stored != (address,):
            old = f"{stored[0]}/"
            for table, column in COLUMNS:
                # LIKE is not used: it would take `_` and `%` in an address for wildcards.
                update = f"{column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?"
                store.execute(f"UPDATE {table} SET {update}", (f"{address}/", len(old) + 1, len(old), old))
            store.execute(f"UPDATE {HOME_TABLE} SET address = ?", (address,))


def last_points(run: Run) -> list[Metric]:
    """Returns the last point of each metric of a run, with time and step, without a request for each."""
    points: list[Metric] = run.data._metric_objs
    return points


def artifact_store(uri: str, tracking_uri: str) -> ArtifactRepository:
    """Returns the repository at an artifact URI, which can delete artifacts, unlike MLflow's client."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=tracking_uri)


VERSIONS_TAG = "mlflow.modelVersions"
"""The tag of a logged model with its registered versions. A server sets it, an SQLite store does not."""
