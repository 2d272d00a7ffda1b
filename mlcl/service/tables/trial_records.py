"""The trainings of a table's tuned cells as a Parquet file: search trials and fresh seeds, a row for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.files import new_file
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables.tuned_cell import TunedCell

TEXT = pa.string()
SCHEMA = pa.schema(
    {
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
    }
)
"""`settings` is JSON: the keys of a space differ by cell, and their values are numbers, texts and lists."""


def write_trials(file: Path, searches: Mapping[TunedCell, Ledger]) -> None:
    """Writes all search trials and fresh seeds of these cells that have ended, each cell by its ledger."""
    rows = [row for cell, ledger in searches.items() for row in _rows(cell, ledger)]
    with new_file(file) as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd")


def _rows(cell: TunedCell, ledger: Ledger) -> Iterator[dict[str, Any]]:
    for each in cell.searches(ledger):
        stages = {"search": each.trials, "race": each.race_trainings, "confirmation": each.seeds}
        for stage, entries in stages.items():
            for entry in entries:
                if entry.ended:
                    yield _row(cell, each.search.number, stage, entry)


def _row(cell: TunedCell, search: int, stage: str, entry: Entry) -> dict[str, Any]:
    return {
        "row": cell.cell.row,
        "column": cell.cell.column,
        "data": cell.data.fingerprint,
        "search": search,
        "stage": stage,
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
    }
