"""Prints what the predictions of docs/leaderboard say on its figures.

    python tools/leaderboard.py docs/leaderboard/figures

D(a, b) is the mean over the seeds of a minus b on one data set, in points; p is the sign-flip test's, without
correction. Cells that are missing are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from leaderboard_figures import ALONE, CONTROL, Figures, folder_of_figures, read
from scipy.stats import spearmanr

SPREAD = {
    "Reuters-21578": 0.19,
    "GoEmotions 5,000": 0.30,
    "DeepFashion2": 0.53,
    "AAPD 750": 0.64,
    "CodiEsp chapters": 0.79,
    "CodiEsp categories": 1.06,
}
"""Of K over the pairs of training rows that share a label: standard deviation over mean. The prediction is of
these data sets."""
LABELLED = ("any", "all", "mulsupcon", "simdis", "jaccard", "knn", "msc")
"""Rows of the table of labels whose head reads labels, without those that leave out a factor."""
HIERARCHICAL = ("himulcon", "hicone", "himulcone")


def shown(table: Figures, a: str, b: str, column: str) -> str:
    """D(a, b) of the main figure."""
    found = table.difference(a, b, column)
    return f"D({a}, {b}) on {column} {found.points:+.2f} (p {found.p:.3f})"


def shown_ranks(ranks: dict[str, float]) -> Iterator[str]:
    """A line, the best row first; none without a rank."""
    if ranks:
        order = sorted(ranks.items(), key=lambda each: each[1])
        yield "average ranks: " + ", ".join(f"{row} {rank:.2f}" for row, rank in order)


def gain_by_spread(labels: Figures) -> Iterator[str]:
    columns = [column for column in labels.columns("simdis", "any") if column in SPREAD]
    yield from (shown(labels, "simdis", "any", column) for column in columns)
    if len(columns) > 2:
        gains = [labels.difference("simdis", "any", column).points for column in columns]
        order = spearmanr([SPREAD[column] for column in columns], gains)
        yield f"rank correlation with the spread of K over {len(columns)} data sets: {order.statistic:+.2f}"


def rare_sets(labels: Figures) -> Iterator[str]:
    for column in labels.columns("all", "simclr"):
        yield shown(labels, "all", "simclr", column)


def hierarchy(classes: Figures, flat: str) -> Iterator[str]:
    """The best loss of a hierarchy beside `flat`, supcon on the finest level alone."""
    for column in classes.columns(flat, *HIERARCHICAL):
        best = max(HIERARCHICAL, key=lambda row: classes.mean(row, column))
        yield "the best: " + shown(classes, best, flat, column)


def unseen_classes(unseen: Figures) -> Iterator[str]:
    """All rows beside supcon on the finest level alone, in columns that have it."""
    for flat in ("supcon, sections", "supcon, fine classes"):
        for column in unseen.columns(flat):
            for row in ("cross-entropy", "simclr", "supcon, both levels", *HIERARCHICAL):
                if (row, column) in unseen.cells:
                    yield shown(unseen, row, flat, column)


def neighbours(tables: dict[str, Figures]) -> Iterator[str]:
    """How much D(head, control) grows with the neighbours, over the cells whose head sees labels."""
    for name, table in tables.items():
        control = CONTROL[name]
        gains = [
            table.difference(row, control, column).points
            - table.difference(row, control, column, table.main + ALONE).points
            for row, column in table.cells
            if row not in ("simclr", control, "asl")
            and column in table.columns(control)
            and table.cells[row, column][table.main] != table.cells[row, column][table.main + ALONE]
        ]
        if gains:
            more = sum(gain > 0 for gain in gains)
            yield (
                f"{name}: larger with neighbours in {more} of {len(gains)} cells, "
                f"mean {mean(gains):+.2f}, median {median(gains):+.2f}"
            )


def noise(classes: Figures) -> Iterator[str]:
    row, control = "supcon and global (MLCL)", "cross-entropy"
    for column in classes.columns(row, control):
        yield shown(classes, row, control, column)


def main(folder: Path) -> None:
    """Prints each prediction of the page, and the figures that decide it."""
    tables = {name: read(folder, name) for name in CONTROL}
    labels, classes = tables["labels"], tables["classes"]
    factors = ("simdis", "simdis without Ks", "simdis without Kd")
    sections = {
        "The gain of simdis over any grows with the spread of K": gain_by_spread(labels),
        "Both factors are needed": shown_ranks(labels.average_ranks(factors)),
        "all becomes SimCLR where label sets are rare": rare_sets(labels),
        "A hierarchy helps most with few labels": hierarchy(classes, "supcon, sections"),
        "Heads help the blend with the neighbours more": neighbours(tables),
        "Under noise MLCL's heads gain most": noise(classes),
        "Labels matter": shown_ranks(labels.average_ranks(("simclr", *LABELLED))),
        "On images a hierarchy helps most with few labels": hierarchy(classes, "supcon, fine classes"),
        "On unseen classes a hierarchy helps": unseen_classes(read(folder, "unseen")),
    }
    for number, (title, lines) in enumerate(sections.items(), 1):
        print(f"{number}. {title}")
        for line in lines:
            print(f"   - {line}")


if __name__ == "__main__":
    main(folder_of_figures(__doc__ or ""))
