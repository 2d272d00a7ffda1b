"""Reads the trainings of a table's tuned cells from its Parquet file as a pandas frame."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from mlcl.errors import UserError


def read_trials(file: Path) -> pd.DataFrame:
    """Reads `trials.parquet` of a table, with one row for each training: trials, races and fresh seeds.

    The columns `settings` and `metrics` hold dicts; `epochs` and `intermediate` hold lists of equal length.
    The frame's `attrs` have the table's name and id, the commits that trained the runs, and whether all of
    these commits were without uncommitted changes.
    Raises UserError where the file is missing or damaged.

    Example:
        >>> trials = read_trials(Path("outputs/tables/my-table/trials.parquet"))
        >>> trials[trials.stage == "search"].groupby(["row", "column"]).score.max()
    """
    try:
        stored = pq.read_table(file)
        rows = stored.to_pylist()
    except (OSError, ValueError) as error:
        raise UserError("the trials of a table cannot be read", file=file, found=error) from None
    for row in rows:
        row["settings"], row["metrics"] = json.loads(row["settings"]), dict(row["metrics"])
    frame = pd.DataFrame(rows)
    frame.attrs |= {key.decode(): value.decode() for key, value in (stored.schema.metadata or {}).items()}
    return frame
