"""The artifacts of a home that was moved or copied: MLflow keeps whole paths of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from mlcl.tracking.uri import sqlite_file

ARTIFACTS = "artifacts"
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Where MLflow's tables have addresses of artifacts."""
PLACE = "mlcl_home"
"""A table of ours in the store, with one row: where its home lies. A user of MLflow could change a tag."""


def relocate_artifacts(uri: str, home: Path) -> None:
    """Corrects the addresses in the store of a home that lies elsewhere now, and keeps there where it lies.

    Only of a store that is a file in this home, and only addresses within the place where this home lay. Does
    nothing where nothing was moved. The caller must hold the home's `LOCK`.
    """
    file, here = sqlite_file(uri), home.as_uri()
    if file is None or not file.is_relative_to(home) or not file.is_file() or not file.stat().st_size:
        return
    with closing(sqlite3.connect(file, timeout=60)) as store, store:
        tables = {name for (name,) in store.execute("SELECT name FROM sqlite_master")}
        if not {table for table, _ in COLUMNS} <= tables:
            return
        kept = store.execute(f"SELECT address FROM {PLACE}").fetchone() if PLACE in tables else None
        if kept == (here,):
            return
        for old in ({*kept} if kept else _seen_homes(store, home)) - {here}:
            _rewrite(store, old, here)
        store.execute(f"CREATE TABLE IF NOT EXISTS {PLACE} (address TEXT NOT NULL)")
        store.execute(f"DELETE FROM {PLACE}")
        store.execute(f"INSERT INTO {PLACE} VALUES (?)", (here,))


def _seen_homes(store: sqlite3.Connection, home: Path) -> set[str]:
    """Where the home lay whose store does not keep it, as earlier releases left it.

    Artifacts lay in folders with the names of their experiments, where MLflow's server chose with their ids.
    Only a folder that the home has too was its own: `mlcl up --artifacts` may name any other.
    """
    homes = set()
    for id, name, place in store.execute("SELECT experiment_id, name, artifact_location FROM experiments"):
        for folder in (name, str(id)):
            end = f"/{ARTIFACTS}/{quote(folder)}"
            if place.startswith("file:") and place.endswith(end) and (home / ARTIFACTS / folder).is_dir():
                homes.add(place.removesuffix(end))
    return homes


def _rewrite(store: sqlite3.Connection, old: str, new: str) -> None:
    for table, column in COLUMNS:
        # Not LIKE, to which `_` and the `%` of an address are any text.
        moved = f"{column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?"
        store.execute(f"UPDATE {table} SET {moved}", (new, len(old) + 1, len(old) + 1, f"{old}/"))
