"""Prints the contrasts of encoder-losses, and their differences between columns, as tables in Markdown.

    python tools/encoder_contrasts.py FIGURES

FIGURES is the folder of `mlcl reproduce encoder-losses-... --figures`, such as
docs/leaderboard/figures/encoder-losses. Differences are within seeds, in points, with Student's 95 % interval
over seeds; those between columns have Welch's interval. The intervals do not include the error of the test
rows, which all seeds share, and are not corrected for several tests. Columns that lack a row or a figure,
such as those of held-out labels, are left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Seeds = NDArray[np.float64]
Cells = Mapping[tuple[str, str], Mapping[str, Mapping[str, list[float]]]]
FIGURES = ("micro-F1", "retrieval")
CONTRASTS = {
    "simdis less mulsupcon": ("+ simdis", "+ mulsupcon"),
    "simdis less mulsupcon, then probe": ("simdis, then probe", "mulsupcon, then probe"),
    "mulsupcon less simclr": ("+ mulsupcon", "+ simclr"),
    "mulsupcon less simclr, then probe": ("mulsupcon, then probe", "simclr, then probe"),
}
HEADS, CONTROL = ("+ mulsupcon", "+ simdis", "+ msc"), "BCE, two views"


def read(folder: Path) -> Cells:
    """Returns the figures of each cell by name, keyed by column and row. Raises SystemExit without a cell."""
    cells = [json.loads(file.read_text()) for file in sorted(folder.glob("*/*.json"))]
    if not cells:
        raise SystemExit(f"{folder}: has no cells (ROW/COLUMN.json)")
    return {
        (cell["column"], cell["row"]): {figure["name"]: figure for figure in cell["figures"]}
        for cell in cells
    }


def within(difference: Seeds) -> str:
    """Returns the mean of a difference over seeds with Student's interval."""
    low, high = stats.ttest_1samp(difference, 0).confidence_interval()
    return f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def between(first: Seeds, second: Seeds) -> str:
    """Returns the difference of two columns' differences with Welch's interval."""
    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    return f"{first.mean() - second.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def lines(folder: Path) -> Iterator[str]:
    """Yields a table of contrasts for each figure and size or damage, also less those of the first column."""
    cells = read(folder)
    rows = {CONTROL, *HEADS, *(row for pair in CONTRASTS.values() for row in pair)}
    full_columns = sorted(
        {column for column, _ in cells if all({*FIGURES} <= {*cells.get((column, row), ())} for row in rows)}
    )
    if not full_columns:
        raise SystemExit(f"{folder}: no column has all of {', '.join(sorted(rows))}")
    sizes = dict.fromkeys(_size(column) for column in full_columns)
    for name, columns in product(
        FIGURES, ([column for column in full_columns if _size(column) == size] for size in sizes)
    ):
        yield f"| {name} | " + " | ".join(columns) + " |"
        yield "|---" * (1 + len(columns)) + "|"
        for title, (first_row, second_row) in CONTRASTS.items():
            differences = [_difference(cells, column, first_row, second_row, name) for column in columns]
            yield f"| {title} | " + " | ".join(map(within, differences)) + " |"
            changes = ["", *(between(difference, differences[0]) for difference in differences[1:])]
            yield f"| less that of {columns[0]} | " + " | ".join(changes) + " |"
        best_heads = [_best(cells, column) for column in columns]
        pairs = zip(columns, best_heads, strict=True)
        words = [
            f"{row[2:]} {within(_difference(cells, column, row, CONTROL, name))}" for column, row in pairs
        ]
        yield f"| the best head by validation, less {CONTROL} | " + " | ".join(words) + " |"
        yield ""


def _difference(cells: Cells, column: str, first_row: str, second_row: str, name: str) -> Seeds:
    first, second = (np.array(cells[column, row][name]["values"], float) for row in (first_row, second_row))
    return np.asarray(first - second)


def _size(column: str) -> str:
    """Returns the number of rows in a column's name; without one, the words after its comma."""
    match = re.search(r"\d[\d,]*\b", column)
    return match[0] if match else column.partition(", ")[2]


def _best(cells: Cells, column: str) -> str:
    """Returns the head with the largest mean of the first figure on validation."""
    means = {row: float(np.mean(cells[column, row][FIGURES[0]]["validation"])) for row in HEADS}
    return max(means, key=lambda row: means[row])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("\n".join(lines(Path(sys.argv[1]))))
