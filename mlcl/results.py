"""Results for notebooks: `mlcl.results.load("my-sweep")`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load(name: str, *, home: str | Path | None = None, uri: str | None = None) -> pd.DataFrame:
    """The trainings of a sweep or table as a tidy pandas frame, with a row for each trial and seed.

    `name` is a sweep's or table's name or id, or its run id in MLflow. Rows have the `kind` `search`,
    `baseline search`, `confirmation` or `cell`. Search trials share one seed and were selected by their
    score: compare settings by the other rows. Then come `setting`, `number` (of the trial), `seed`, `state`,
    `reason`, `score`, `run_id`, `started` (UTC), `seconds`, `cpu_seconds`, `gpu_seconds`, the job's dotted
    keys, and the metrics. Search trials that do not fit the sweep's latest space are left out. A table has a
    row for each cell and seed, also for runs that another command trained.

    `home` is where local runs are (default: MLCL_HOME, else `outputs`); `uri` the tracking store (default:
    MLFLOW_TRACKING_URI, else the SQLite file under `home`). Raises UserError where there is no such sweep.
    """
    from mlcl.report.results_frame import trainings
    from mlcl.report.runs import Runs
    from mlcl.tracking import Tracker

    folder = Path(home if home is not None else os.environ.get("MLCL_HOME", "outputs"))
    return trainings(Runs(Tracker.existing(folder, uri)), name)
