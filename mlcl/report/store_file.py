"""Reads the runs in MLflow's SQLite file without MLflow, whose import takes longer than the reading."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

RUNS = """SELECT r.run_uuid, r.name, CAST(r.experiment_id AS TEXT), r.start_time
FROM runs r JOIN experiments e USING (experiment_id)
WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active'"""
ORDER = "ORDER BY r.start_time DESC, r.run_uuid"


class Info(NamedTuple):
    """What of `mlflow.entities.RunInfo` a comparison reads."""

    run_id: str
    run_name: str
    experiment_id: str
    start_time: int


class Data(NamedTuple):
    """What of `mlflow.entities.RunData` a comparison reads."""

    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]


class StoredRun(NamedTuple):
    """A run of the file; its parts are named as those of `mlflow.entities.Run`."""

    info: Info
    data: Data


class StoreFile:
    """The runs of an SQLite file of MLflow 3.17, as `mlcl.report.runs.Store`. Nothing is written."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, run_id: str) -> StoredRun | None:
        """The run of MLflow's id."""
        return next(self._runs("AND r.run_uuid = ?", run_id), None)

    def tagged(self, tag: str, value: str, how: str) -> Iterator[StoredRun]:
        """The runs whose `tag` is `value`, or with LIKE matches it, the latest first."""
        where = f"AND r.run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value {how} ?)"
        # That of SQLite ignores case.
        like = re.compile(re.escape(value).replace("%", ".*").replace("_", "."), re.DOTALL).fullmatch
        found = self._runs(where, tag, value)
        return (run for run in found if how != "LIKE" or like(run.data.tags[tag]))

    def latest(self) -> Iterator[StoredRun]:
        """All runs, the latest first."""
        return self._runs("")

    def _runs(self, where: str, *values: str) -> Iterator[StoredRun]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=60)) as store:
            for row in store.execute(f"{RUNS} {where} {ORDER}", values):
                info = Info(*row)
                metrics = {
                    key: math.nan if nan else value
                    for key, value, nan in _rows(store, "key, value, is_nan", "latest_metrics", info)
                }
                params, tags = (dict(_rows(store, "key, value", name, info)) for name in ("params", "tags"))
                yield StoredRun(info, Data(metrics, params, tags))


def _rows(store: sqlite3.Connection, columns: str, table: str, info: Info) -> Iterator[Any]:
    return store.execute(f"SELECT {columns} FROM {table} WHERE run_uuid = ?", (info.run_id,))
