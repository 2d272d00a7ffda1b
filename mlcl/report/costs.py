"""The budget ledger: what each part of a sweep took."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from mlcl.report.document import Cell, Table, words
from mlcl.report.frame import COSTS

HOURS = 3600


def budget_table(search: pd.DataFrame, confirmation: pd.DataFrame) -> Table:
    """A row a state of the search trials and a row a confirmed setting, and the sum."""
    rows = [_row(part, runs) for part, runs in _parts(search, confirmation)]
    everything = pd.concat([search, confirmation]) if len(confirmation) else search
    heads = ("part", "trainings", "hours", "cpu-h", "gpu-h", "hours each")
    return Table(heads, (*rows, _row("all", everything)))


def _parts(search: pd.DataFrame, confirmation: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for state in dict.fromkeys(search["state"]):
        yield f"search, {state}", search[search["state"] == state]
    for setting in dict.fromkeys(confirmation["setting"]):
        yield f"confirmation, {setting}", confirmation[confirmation["setting"] == setting]


def _row(part: str, runs: pd.DataFrame) -> tuple[Cell, ...]:
    if not len(runs) or runs["seconds"].isna().any():
        return words(part, str(len(runs)), *[""] * 4)
    hours = [float(runs[name].sum()) / HOURS for name in COSTS]
    return words(part, str(len(runs)), *(f"{each:.4f}" for each in hours), f"{hours[0] / len(runs):.4f}")
