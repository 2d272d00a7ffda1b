"""Results of sweeps and tables: as a pandas frame (`mlcl.results.load("my-sweep")`) and as dataclasses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load(name: str, *, home: str | Path | None = None, uri: str | None = None) -> pd.DataFrame:
    """Reads the trainings of a sweep or table as a tidy pandas frame with a row for each training.

    The column `kind` is `search`, `baseline search`, `race`, `confirmation` or `cell`. Search trials share
    one seed and were selected by their score: compare settings by the other rows. Further columns are
    `setting`, `number` (of the trial), `seed`, `state`, `reason`, `score`, `run_id`, `started` (UTC),
    `seconds`, `cpu_seconds`, `gpu_seconds`, the job's dotted keys, and the metrics. Search trials that do not
    fit the sweep's latest space are left out. A table has a row for each cell and seed, also where another
    command trained the run.

    Args:
        name: The name or id of a sweep or table, or its run id in MLflow.
        home: The folder of local runs. Default: MLCL_HOME, else `outputs`.
        uri: The tracking store. Default: MLFLOW_TRACKING_URI, else the SQLite file under `home`.

    Raises:
        UserError: There is no such sweep or table.

    Example:
        >>> frame = mlcl.results.load("my-sweep")
        >>> fresh = frame[frame["kind"] == "confirmation"]
        >>> fresh.groupby("setting")["test/accuracy"].agg(["mean", "std", "count"])
    """
    from mlcl.results.documents import read_sweep, read_table
    from mlcl.results.frame import sweep_frame, table_frame
    from mlcl.results.runs import Runs, check_name, kind
    from mlcl.tracking import Tracker

    check_name(name)
    folder = Path(home if home is not None else os.environ.get("MLCL_HOME", "outputs")).expanduser()
    runs = Runs(Tracker.open_existing(folder, uri))
    run = runs.require_group(name)
    return sweep_frame(read_sweep(runs, run)) if kind(run) == "sweep" else table_frame(read_table(runs, run))
