"""Writes the trainings of a table's tuned cells (trials, races, fresh seeds) to a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.files import new_file
from mlcl.results.provenance import Tags
from mlcl.results.table_result import TableResult
from mlcl.results.training_result import training_folder
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import log_id
from mlcl.service.tables.origin import commit_of
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.tracking.names import TABLE_TRIALS
from mlcl.training.row_predictions import PREDICTIONS

TEXT = pa.string()
SCHEMA = pa.schema(
    {
        "table": TEXT,
        "row": TEXT,
        "column": TEXT,
        "data": TEXT,
        "search": pa.int64(),
        "stage": TEXT,
        "number": pa.int64(),
        "seed": pa.int64(),
        "state": TEXT,
        "reason": TEXT,
        "settings": TEXT,
        "epochs": pa.list_(pa.int64()),
        "intermediate": pa.list_(pa.float64()),
        "score": pa.float64(),
        "metrics": pa.map_(TEXT, pa.float64()),
        "seconds": pa.float64(),
        "commit": TEXT,
        "predictions": TEXT,
    }
)
"""The columns of the file, one row per training. `settings` is JSON, since the keys of a space differ between
cells and their values are numbers, texts or lists. `commit` is that of the code that trained, with a `+` for
uncommitted changes; `predictions` is the file of the test predictions, relative to the home."""


def write_trials(
    report: TableResult, searches: Mapping[TunedCell, Ledger], tags: Callable[[str], Tags]
) -> None:
    """Writes all ended trainings of tuned cells to a Parquet file in the table's folder.

    Its metadata have the table's name and id, all commits, and whether all code was committed.
    """
    rows = [
        {"table": report.name, **row}
        for cell, ledger in searches.items()
        for row in _rows(cell, ledger, tags)
    ]
    commits = sorted({row["commit"] for row in rows})
    clean = bool(commits) and all(each and not each.endswith("+") for each in commits)
    about = {"table": report.name, "id": report.id, "commit": ", ".join(commits), "clean": str(clean).lower()}
    found = pa.Table.from_pylist(
        rows, SCHEMA.with_metadata({f"mlcl.{key}": its for key, its in about.items()})
    )
    with new_file(report.folder / TABLE_TRIALS) as path:
        pq.write_table(found, path, compression="zstd")


def _rows(cell: TunedCell, ledger: Ledger, tags: Callable[[str], Tags]) -> Iterator[dict[str, Any]]:
    for each in cell.searches(ledger):
        stages = {"search": each.trials, "race": each.race_trainings, "confirmation": each.seeds}
        for stage, entries in stages.items():
            for entry in entries:
                if entry.ended:
                    place = {"row": cell.cell.row, "column": cell.cell.column, "data": cell.data.fingerprint}
                    yield {**place, "search": each.search.number, "stage": stage, **_row(entry, ledger, tags)}


def _row(entry: Entry, ledger: Ledger, tags: Callable[[str], Tags]) -> dict[str, Any]:
    folder = ledger.folder
    predictions = training_folder(folder, entry.key) / PREDICTIONS
    return {
        "number": entry.number,
        "seed": entry.job["train"]["seed"],
        "state": str(entry.state),
        "reason": entry.reason,
        "settings": json.dumps({**entry.settings, **entry.chosen}),
        "epochs": [epoch for epoch, _ in entry.intermediate],
        "intermediate": [score for _, score in entry.intermediate],
        "score": entry.score,
        "metrics": list(entry.metrics.items()),
        "seconds": entry.cost.seconds,
        "commit": commit_of(tags(log_id(folder.name, entry.key))),
        "predictions": str(predictions.relative_to(folder.parents[1])) if predictions.is_file() else None,
    }
