"""The artifacts of a home that was moved: MLflow keeps whole paths of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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


def relocate_artifacts(uri: str, home: Path) -> None:
    """Corrects the addresses in the store of a home that lies elsewhere now.

    Only of a store that is a file in this home, and only those that `Tracker` chose: folders named after
    their experiments in `artifacts`. Does nothing where nothing was moved.
    """
    file, root = sqlite_file(uri), (home / ARTIFACTS).as_uri()
    if file is None or not file.is_relative_to(home) or not file.is_file() or not file.stat().st_size:
        return
    with closing(sqlite3.connect(file, timeout=60)) as store, store:
        tables = {name for (name,) in store.execute("SELECT name FROM sqlite_master")}
        if not {table for table, _ in COLUMNS} <= tables:
            return
        places = store.execute("SELECT name, artifact_location FROM experiments").fetchall()
        ours = {place.removesuffix(f"/{name}") for name, place in places if place.endswith(f"/{name}")}
        for old in ours - {root}:
            if old.startswith("file:") and old.endswith(f"/{ARTIFACTS}"):
                for table, column in COLUMNS:
                    moved = f"{column} = ? || substr({column}, ?) WHERE {column} LIKE ? || '/%'"
                    store.execute(f"UPDATE {table} SET {moved}", (root, len(old) + 1, old))
