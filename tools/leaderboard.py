"""Prints Markdown on the figures of docs/leaderboard: each row beside the control, then the predictions.

    python tools/leaderboard.py docs/leaderboard/figures

D(a, b) is the mean over the seeds of a minus b on one data set, in points; p is the sign-flip test's, in the
lists of a data set after Holm, in the predictions as it is. Cells that are missing are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from scipy.stats import rankdata, spearmanr

from mlcl.significance.paired_tests import compare_paired, holm

SPREAD = {
    "Reuters-21578": 0.19,
    "GoEmotions 5,000": 0.30,
    "DeepFashion2": 0.53,
    "CodiEsp chapters": 0.79,
    "CodiEsp categories": 1.06,
}
"""Of K over the pairs of training rows that share a label: standard deviation over mean."""
CONTROL = {"labels": "BCE", "classes": "cross-entropy"}
MAIN = {"labels": "micro-F1", "classes": "accuracy", "unseen": "1-NN accuracy"}
ALONE = " without neighbours"
LABELLED = ("any", "all", "mulsupcon", "simdis", "jaccard", "knn", "msc")
"""Rows of the table of labels whose head reads labels, without those that leave out a factor."""


@dataclass(frozen=True)
class Figures:
    """The values by seed of one table's cells: by (row, column), then by the figure's name."""

    cells: dict[tuple[str, str], dict[str, list[float]]]
    main: str

    def columns(self, *rows: str) -> list[str]:
        """The columns that have all these rows, in the order of their names."""
        every = sorted({column for _, column in self.cells})
        return [column for column in every if all((row, column) in self.cells for row in rows)]

    def difference(self, a: str, b: str, column: str, figure: str = "") -> tuple[float, float]:
        """D(a, b) of a figure, `main` where none is named, and its p."""
        x, y = (self.cells[row, column][figure or self.main] for row in (a, b))
        found = compare_paired(y, x)
        return found.difference, found.p if found.p is not None else 1.0

    def average_ranks(self, rows: tuple[str, ...]) -> dict[str, float]:
        """Of the means of `main` over the columns that have all these rows; 1 is the best."""
        columns = self.columns(*rows)
        ranks = [rankdata([-mean(self.cells[row, column][self.main]) for row in rows]) for column in columns]
        return {row: float(mean(rank[i] for rank in ranks)) for i, row in enumerate(rows) if ranks}


def read(folder: Path, table: str) -> Figures:
    """The cells that `mlcl reproduce --figures` wrote to FOLDER/TABLE."""
    cells = {}
    for file in sorted((folder / table).glob("*/*.json")):
        cell = json.loads(file.read_text())
        cells[cell["row"], cell["column"]] = {each["name"]: each["values"] for each in cell["figures"]}
    return Figures(cells, MAIN[table])


def folder_of_figures() -> Path:
    """The command line's argument; a folder without a cell ends the command in one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figures", type=Path, help="what `mlcl reproduce --figures` wrote")
    folder: Path = parser.parse_args().figures
    if not any(folder.glob("*/*/*.json")):
        parser.error(f"{folder}: no cell in it; allowed: a folder with {' and '.join(CONTROL)}")
    return folder


def shown(a: str, b: str, column: str, found: tuple[float, float]) -> str:
    return f"D({a}, {b}) on {column} {found[0]:+.2f} (p {found[1]:.3f})"


def shown_ranks(ranks: dict[str, float]) -> Iterator[str]:
    """A line, the best row first; none without a rank."""
    if ranks:
        order = sorted(ranks.items(), key=lambda each: each[1])
        yield "average ranks: " + ", ".join(f"{row} {rank:.2f}" for row, rank in order)


def beside_control(table: Figures, control: str) -> Iterator[str]:
    """For each column a heading, and every row's D(row, control) with its p after Holm, the best first."""
    for column in table.columns(control):
        rows = [row for row, its in table.cells if its == column and row != control]
        found = [table.difference(row, control, column) for row in rows]
        adjusted = holm([p for _, p in found])
        yield f"**{column}**, {table.main}, {control} {mean(table.cells[control, column][table.main]):.2f}:"
        for (gain, _), p, row in sorted(zip(found, adjusted, rows, strict=True), reverse=True):
            yield f"{row} {gain:+.2f} (p {p:.3f})"


def gain_by_spread(labels: Figures) -> Iterator[str]:
    columns = labels.columns("simdis", "any")
    found = {column: labels.difference("simdis", "any", column) for column in columns}
    yield from (shown("simdis", "any", column, each) for column, each in found.items())
    if len(columns) > 2:
        order = spearmanr([SPREAD[column] for column in columns], [found[column][0] for column in columns])
        yield f"rank correlation with the spread of K over {len(columns)} data sets: {order.statistic:+.2f}"


def factors(labels: Figures) -> Iterator[str]:
    ranks = labels.average_ranks(("simdis", "simdis without Ks", "simdis without Kd"))
    yield from shown_ranks(ranks)


def rare_sets(labels: Figures) -> Iterator[str]:
    for column in labels.columns("all", "simclr"):
        yield shown("all", "simclr", column, labels.difference("all", "simclr", column))


def hierarchy(classes: Figures, flat: str) -> Iterator[str]:
    """The best loss of a hierarchy beside `flat`, supcon on the finest level alone."""
    rows = ("himulcon", "hicone", "himulcone")
    for column in classes.columns(flat, *rows):
        found = {row: classes.difference(row, flat, column) for row in rows}
        best = max(found, key=lambda row: found[row][0])
        yield "the best: " + shown(best, flat, column, found[best])


def unseen_classes(unseen: Figures) -> Iterator[str]:
    """Each row that reads the hierarchy beside supcon on the finest level alone, in columns that have it."""
    for flat in ("supcon, sections", "supcon, fine classes"):
        for column in unseen.columns(flat):
            for row in ("supcon, both levels", "himulcon", "hicone", "himulcone"):
                if (row, column) in unseen.cells:
                    yield shown(row, flat, column, unseen.difference(row, flat, column))


def neighbours(tables: dict[str, Figures]) -> Iterator[str]:
    for name, table in tables.items():
        gains = [
            table.difference(row, CONTROL[name], column)[0]
            - table.difference(row, CONTROL[name], column, table.main + ALONE)[0]
            for row, column in table.cells
            if row not in ("simclr", CONTROL[name], "asl")
            and column in table.columns(CONTROL[name])
            and table.cells[row, column][table.main] != table.cells[row, column][table.main + ALONE]
        ]
        if gains:
            more = sum(gain > 0 for gain in gains)
            yield f"{name}: larger with neighbours in {more} of {len(gains)} cells, mean {mean(gains):+.2f}"


def noise(classes: Figures) -> Iterator[str]:
    row, control = "supcon and global (MLCL)", "cross-entropy"
    for column in classes.columns(row, control):
        yield shown(row, control, column, classes.difference(row, control, column))


def labels_matter(labels: Figures) -> Iterator[str]:
    ranks = labels.average_ranks(("simclr", *LABELLED))
    yield from shown_ranks(ranks)


def main(folder: Path) -> None:
    tables = {name: read(folder, name) for name in CONTROL}
    labels, classes = tables["labels"], tables["classes"]
    for name, table in tables.items():
        for line in beside_control(table, CONTROL[name]):
            print(f"\n{line}\n" if line.startswith("**") else f"- {line}")
    print()
    sections = {
        "The gain of simdis over any grows with the spread of K": gain_by_spread(labels),
        "Both factors are needed": factors(labels),
        "all becomes SimCLR where label sets are rare": rare_sets(labels),
        "A hierarchy helps most with few labels": hierarchy(classes, "supcon, sections"),
        "Heads help the blend with the neighbours more": neighbours(tables),
        "Under noise MLCL's heads gain most": noise(classes),
        "Labels matter": labels_matter(labels),
        "On images a hierarchy helps most with few labels": hierarchy(classes, "supcon, fine classes"),
        "On unseen classes a hierarchy helps": unseen_classes(read(folder, "unseen")),
    }
    for number, (title, lines) in enumerate(sections.items(), 1):
        print(f"{number}. {title}")
        for line in lines:
            print(f"   - {line}")


if __name__ == "__main__":
    main(folder_of_figures())
