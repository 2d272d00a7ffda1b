"""The trainings of a sweep or a table as a frame."""

from __future__ import annotations

import pandas as pd
from mlflow.entities import Run

from mlcl.report.compared_settings import cell_label
from mlcl.report.frame import LabelledRun, frame_of
from mlcl.report.runs import Runs, kind
from mlcl.report.sweep_data import trainings_of
from mlcl.report.table_data import read_cells


def trainings(runs: Runs, name: str) -> pd.DataFrame:
    """Search trials and confirmations of a sweep, or cells of a table. Raises UserError for neither."""
    group = runs.require_group(name)
    if kind(group) == "sweep":
        return frame_of(trainings_of(runs, group))
    return frame_of(_cells(runs, group))


def _cells(runs: Runs, table: Run) -> list[LabelledRun]:
    """The runs of a table's figures, also those of other tables, and its other trainings, by start time."""
    found = [(label, run) for label, its in read_cells(runs, table).items() for run in its]
    known = {run.info.run_id for _, run in found}
    found += [(cell_label(run), run) for run in runs.children(table) if run.info.run_id not in known]
    found.sort(key=lambda each: int(each[1].info.start_time))
    return [("cell", label, run) for label, run in found]
