"""Reads the runs of a tracking store through MLflow's client, or from its SQLite file without MLflow.

Reading the file is faster than the import of MLflow.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

RUNS = """SELECT r.run_uuid, r.name, CAST(r.experiment_id AS TEXT), r.start_time
FROM runs r JOIN experiments e USING (experiment_id)
WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active'"""
ORDER = "ORDER BY r.start_time DESC, r.run_uuid"
LATEST_FIRST = "attributes.start_time DESC"


class ClientRuns:
    """The runs of a tracking store that were not deleted, as MLflow's client has them."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._experiments = [
            str(experiment.experiment_id) for experiment in _all_pages(client.search_experiments)
        ]

    def get(self, run_id: str) -> Run | None:
        """Returns the run with this MLflow id; None where it does not exist or was deleted."""
        from mlflow.exceptions import MlflowException

        try:
            run = self._client.get_run(run_id)
        except MlflowException:
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def find_tagged(self, tag: str, value: str, operator: str) -> Iterator[Run]:
        """Yields the runs whose `tag` equals `value`, or with `operator` LIKE matches it, latest first."""
        quote = '"' if "'" in value else "'"
        exact, pattern = operator == "=", value
        if quote in value:  # MLflow's filters have no escape, but _ matches any character
            pattern, operator = value.replace(quote, "_"), "LIKE"
        runs = self._search(f"tags.`{tag}` {operator} {quote}{pattern}{quote}")
        return (run for run in runs if pattern == value or not exact or run.data.tags[tag] == value)

    def list_latest(self) -> Iterator[Run]:
        """Yields all runs, latest first."""
        return self._search("")

    def _search(self, where: str) -> Iterator[Run]:
        return _all_pages(
            partial(self._client.search_runs, self._experiments, where, order_by=[LATEST_FIRST])
        )


def _all_pages(search: Callable[..., Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return


class FileRunInfo(NamedTuple):
    """The fields of `mlflow.entities.RunInfo` that mlcl uses."""

    run_id: str
    run_name: str
    experiment_id: str
    start_time: int


class FileRunData(NamedTuple):
    """The fields of `mlflow.entities.RunData` that mlcl uses."""

    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]


class FileRun(NamedTuple):
    """A run read from the SQLite file, with the same attributes as `mlflow.entities.Run`."""

    info: FileRunInfo
    data: FileRunData


class FileRuns:
    """The runs of an SQLite file of MLflow 3.17 that were not deleted. The file is opened read-only."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, run_id: str) -> FileRun | None:
        """Returns the run with this MLflow id; None where it does not exist or was deleted."""
        return next(self._runs("AND r.run_uuid = ?", run_id), None)

    def find_tagged(self, tag: str, value: str, operator: str) -> Iterator[FileRun]:
        """Yields the runs whose `tag` equals `value`, or with `operator` LIKE matches it, latest first."""
        where = f"AND r.run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value {operator} ?)"
        # SQLite's LIKE ignores case.
        matches = re.compile(re.escape(value).replace("%", ".*").replace("_", "."), re.DOTALL).fullmatch
        runs = self._runs(where, tag, value)
        return (run for run in runs if operator != "LIKE" or matches(run.data.tags[tag]))

    def list_latest(self) -> Iterator[FileRun]:
        """Yields all runs, latest first."""
        return self._runs("")

    def _runs(self, where: str, *values: str) -> Iterator[FileRun]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=60)) as store:
            for row in store.execute(f"{RUNS} {where} {ORDER}", values):
                info = FileRunInfo(*row)
                metrics = {
                    key: math.nan if is_nan else value
                    for key, value, is_nan in _rows(store, "key, value, is_nan", "latest_metrics", info)
                }
                params, tags = (dict(_rows(store, "key, value", name, info)) for name in ("params", "tags"))
                yield FileRun(info, FileRunData(metrics, params, tags))


def _rows(store: sqlite3.Connection, columns: str, table: str, info: FileRunInfo) -> Iterator[Any]:
    return store.execute(f"SELECT {columns} FROM {table} WHERE run_uuid = ?", (info.run_id,))
