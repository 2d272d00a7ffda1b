"""Writes and reads a training's validation metric at every setting (k, lambda, temperature) of neighbours.

Shapes: S trainings, K values of k, G lambdas, T temperatures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mlcl.evaluation import Setting
from mlcl.evaluation.tasks import Array
from mlcl.files import replace_text

NEIGHBOURS = "neighbours.json"
AXES = ("k", "lambda", "temperature")
VALUES = "values"
DIGITS = 7
Grid = Mapping[str, Sequence[float]]
"""The values of each axis in `AXES`, and under `VALUES` the metric at each combination of them.

The temperature varies fastest among the combinations."""


def write_neighbours(folder: Path, table: Array) -> None:
    """Writes the table that `mlcl.evaluation.search` returns; metrics are rounded to `DIGITS` decimals."""
    grid: dict[str, list[float | None]] = {axis: np.unique(table[axis]).tolist() for axis in AXES}
    values = table[list(table.dtype.fields or ())[-1]].tolist()
    grid[VALUES] = [round(value, DIGITS) if math.isfinite(value) else None for value in values]
    replace_text(folder / NEIGHBOURS, json.dumps(grid) + "\n")


def read_neighbours(folder: Path) -> dict[str, list[float]]:
    """Reads the grid that a training wrote; returns an empty dict if it wrote none."""
    file = folder / NEIGHBOURS
    if not file.is_file():
        return {}
    grid = json.loads(file.read_text())
    return {name: [math.nan if value is None else value for value in values] for name, values in grid.items()}


def best_mean(grids: Sequence[Grid], mode: str) -> tuple[Setting, tuple[float, ...]] | None:
    """Finds the setting with the best mean metric over trainings; `grids` has a grid for each training.

    `mode` is `max` or `min`. Of equally good settings the smallest k wins, then lambda, then temperature.
    Only settings that all trainings have are compared, since k is limited by the number of training rows.
    Returns the setting and its metric in each training; None if no setting has a value in all trainings.
    """
    if not grids or not all(grids):
        return None
    axis_values = [sorted(set.intersection(*(set(grid[axis]) for grid in grids))) for axis in AXES]
    value_SKGT = np.stack([_select_values(grid, axis_values) for grid in grids])
    # Rounded, since equal means may differ by the rounding of their sums.
    mean_KGT = (1 if mode == "max" else -1) * value_SKGT.mean(axis=0).round(DIGITS + 2)
    if not np.isfinite(mean_KGT).any():
        return None
    k, g, t = np.unravel_index(np.nanargmax(mean_KGT), mean_KGT.shape)
    setting = Setting(int(axis_values[0][k]), axis_values[1][g], axis_values[2][t])
    return setting, tuple(value_SKGT[:, k, g, t].tolist())


def _select_values(grid: Grid, axis_values: Sequence[Sequence[float]]) -> Array:
    """Returns the metric (K, G, T) at the values `axis_values` of each axis."""
    value_KGT = np.array(grid[VALUES]).reshape([len(grid[axis]) for axis in AXES])
    indices = [
        [grid[axis].index(value) for value in values] for axis, values in zip(AXES, axis_values, strict=True)
    ]
    return value_KGT[np.ix_(*indices)]
