"""The hours that each part of a sweep took."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mlcl.report.document import Cell, Table, text_row
from mlcl.report.frame import COSTS
from mlcl.report.sweep_data import SweepData

HOURS = 3600


def budget_table(data: SweepData) -> Table:
    """A row for each state of the search trials and for each confirmed setting, and their sum."""
    rows = [_row(part, runs) for part, runs in _parts(data)]
    known = [runs for runs in (data.search, data.dropped, data.confirmation) if len(runs)]
    heads = ("part", "trainings", "hours", "cpu-h", "gpu-h", "hours each")
    return Table(heads, (*rows, _row("all", pd.concat(known) if known else data.search)))


def _parts(data: SweepData) -> Iterator[tuple[str, pd.DataFrame]]:
    search, confirmation = data.search, data.confirmation
    for state in dict.fromkeys(search["state"]):
        yield f"search, {state}", search[search["state"] == state]
    if len(data.dropped):
        yield "search, of an earlier space", data.dropped
    for setting in dict.fromkeys(confirmation["setting"]):
        yield f"confirmation, {setting}", confirmation[confirmation["setting"] == setting]


def _row(part: str, runs: pd.DataFrame) -> tuple[Cell, ...]:
    if not len(runs) or runs["seconds"].isna().any():
        return text_row(part, str(len(runs)), *[""] * 4)
    hours = [float(runs[name].sum()) / HOURS for name in COSTS]
    return text_row(part, str(len(runs)), *(f"{each:.4f}" for each in hours), f"{hours[0] / len(runs):.4f}")
