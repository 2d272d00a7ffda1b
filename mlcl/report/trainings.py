"""The trainings of a sweep or a table as one frame."""

from __future__ import annotations

import pandas as pd

from mlcl.report.contenders import cell_of
from mlcl.report.frame import frame_of
from mlcl.report.runs import Runs, kind
from mlcl.report.sweep_data import trainings_of


def trainings(runs: Runs, name: str) -> pd.DataFrame:
    """Search trials and confirmations of a sweep, or the cells of a table. Raises UserError for no such."""
    group = runs.the_group(name)
    if kind(group) == "sweep":
        return frame_of(trainings_of(runs, group))
    cells = sorted(runs.children(group), key=lambda run: int(run.info.start_time))
    return frame_of(("cell", cell_of(run), run) for run in cells)
