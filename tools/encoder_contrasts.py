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
    return {(its["column"], its["row"]): {each["name"]: each for each in its["figures"]} for its in cells}


def within(difference: Seeds) -> str:
    """Returns the mean of a difference over seeds with Student's interval."""
    low, high = stats.ttest_1samp(difference, 0).confidence_interval()
    return f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def between(one: Seeds, other: Seeds) -> str:
    """Returns the difference of two columns' differences with Welch's interval."""
    low, high = stats.ttest_ind(one, other, equal_var=False).confidence_interval()
    return f"{one.mean() - other.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def lines(folder: Path) -> Iterator[str]:
    """Yields a table of contrasts for each figure and size or damage, also less those of the first column."""
    cells = read(folder)
    rows = {CONTROL, *HEADS, *(row for pair in CONTRASTS.values() for row in pair)}
    whole = sorted({at for at, _ in cells if all({*FIGURES} <= {*cells.get((at, row), ())} for row in rows)})
    if not whole:
        raise SystemExit(f"{folder}: no column has all of {', '.join(sorted(rows))}")
    sizes = dict.fromkeys(_size(at) for at in whole)
    for name, columns in product(FIGURES, ([at for at in whole if _size(at) == size] for size in sizes)):
        yield f"| {name} | " + " | ".join(columns) + " |"
        yield "|---" * (1 + len(columns)) + "|"
        for title, (one, other) in CONTRASTS.items():
            found = [_difference(cells, column, one, other, name) for column in columns]
            yield f"| {title} | " + " | ".join(map(within, found)) + " |"
            over = ["", *(between(each, found[0]) for each in found[1:])]
            yield f"| less that of {columns[0]} | " + " | ".join(over) + " |"
        best = [_best(cells, column) for column in columns]
        pairs = zip(columns, best, strict=True)
        words = [f"{row[2:]} {within(_difference(cells, at, row, CONTROL, name))}" for at, row in pairs]
        yield f"| the best head by validation, less {CONTROL} | " + " | ".join(words) + " |"
        yield ""


def _difference(cells: Cells, column: str, one: str, other: str, name: str) -> Seeds:
    first, second = (np.array(cells[column, row][name]["values"], float) for row in (one, other))
    return np.asarray(first - second)


def _size(column: str) -> str:
    """Returns the number of rows in a column's name; without one, the words after its comma."""
    found = re.search(r"\d[\d,]*\b", column)
    return found[0] if found else column.partition(", ")[2]


def _best(cells: Cells, column: str) -> str:
    """Returns the head with the largest mean of the first figure on validation."""
    means = {row: float(np.mean(cells[column, row][FIGURES[0]]["validation"])) for row in HEADS}
    return max(means, key=lambda row: means[row])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("\n".join(lines(Path(sys.argv[1]))))
