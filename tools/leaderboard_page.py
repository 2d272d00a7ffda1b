"""Prints docs/leaderboard/data-sets.md: the figures of all cells, a table for each data set.

    python tools/leaderboard_page.py docs/leaderboard/figures > docs/leaderboard/data-sets.md

Cells that are missing are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from leaderboard_figures import ALONE, CONTROL, DECIDED, Difference, Figures, folder_of_figures, read

HEAD = """# The leaderboard by data set

`python tools/leaderboard_page.py docs/leaderboard/figures` prints this page; [what it shows](README.md).

Figures are percentages of test, with nearest neighbours unless it says without: the mean of 10 seeds and, for
trained methods, the standard deviation. A difference is in points, to the table's control unless it names
another; in brackets p of the paired sign-flip test over the seeds, after Holm's correction over the rows of
the data set unless it says otherwise. **Bold**: p at most .05. `figures/` has the figures of each seed.
Macro-F1 of classes and aspects was computed as `macro_f1_predicted`.
"""
SHORT = {"supcon and global (MLCL)": "MLCL", "supcon, sections": "supcon on sections",
         "supcon, fine classes": "supcon on fine classes"}  # fmt: skip
FIGURES = {
    "labels": ("micro-F1", "micro-F1" + ALONE, "macro-F1", "tail macro-F1"),
    "classes": ("accuracy", "accuracy" + ALONE, "macro-F1"),
}
PAIRS = {
    "labels": (("any", "simclr"), ("simdis", "any"), ("simdis", "mulsupcon"), ("msc", "simclr")),
    "classes": (
        ("supcon", "simclr"), ("supcon", "supcon, sections"), ("supcon", "supcon, fine classes"),
        ("himulcon", "supcon"), ("hicone", "supcon"), ("himulcone", "supcon"),
    ),
}  # fmt: skip
"""Pairs of losses whose difference says what one of them adds."""


def p_value(p: float) -> str:
    """Three digits, without the zero before the point."""
    return f"{p:.3f}".removeprefix("0") if p < 0.9995 else "1"


def short(row: str) -> str:
    return SHORT.get(row, row)


def points(found: Difference, adjusted: bool = True) -> str:
    """The points, bold where decided."""
    p = found.adjusted if adjusted else found.p
    return f"**{found.points:+.2f}**" if p <= DECIDED else f"{found.points:+.2f}"


def difference(found: Difference, adjusted: bool = True) -> str:
    """The points, bold where decided, and p."""
    return f"{points(found, adjusted)} ({p_value(found.adjusted if adjusted else found.p)})"


def rows_of_markdown(heads: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table; all columns but the first to the right."""
    for row in (heads, ["---", *["---:"] * (len(heads) - 1)], *body):
        yield f"|{'|'.join(row)}|"


def decided(table: Figures, control: str) -> Iterator[str]:
    """A row for each data set: what is above the control, what below it, the best baseline."""
    heads = ("data set", control, "better", "worse", "not decided", "best baseline")
    body = []
    counts = {"better": 0, "worse": 0, "open": 0}
    for column in table.columns(control):
        found = table.beside(control, column)
        trained = {row: each for row, each in found.items() if (row, column) not in table.baselines}
        better = [row for row, its in trained.items() if its.adjusted <= DECIDED and its.points > 0]
        worse = [row for row, its in trained.items() if its.adjusted <= DECIDED and its.points < 0]
        baseline = next((f"{row} {difference(found[row])}" for row in found if row not in trained), "none")
        still = len(trained) - len(better) - len(worse)
        counts = {"better": counts["better"] + len(better), "worse": counts["worse"] + len(worse),
                  "open": counts["open"] + still}  # fmt: skip
        named = [", ".join(f"{short(row)} {trained[row].points:+.2f}" for row in rows) or "none"
                 for rows in (better, worse)]  # fmt: skip
        value = f"{table.mean(control, column):.2f}"
        body.append((column, value, *named, f"{still}", baseline))
    yield from rows_of_markdown(heads, body)
    yield ""
    yield (
        f"Of {sum(counts.values())} cells with another loss than {control}, {counts['better']} are better, "
        f"{counts['worse']} worse, {counts['open']} not decided."
    )


def pairs(table: Figures, name: str) -> Iterator[str]:
    """Differences between two losses, by data set: with neighbours, and without."""
    known = [pair for pair in PAIRS[name] if table.columns(*pair)]
    heads = ("data set", *(f"{short(a)} - {short(b)}" for a, b in known))
    body = []
    for column in sorted({column for pair in known for column in table.columns(*pair)}):
        found = ["" if column not in table.columns(a, b) else "; ".join(
                     difference(table.difference(a, b, column, figure), adjusted=False)
                     for figure in (table.main, table.main + ALONE))
                 for a, b in known]  # fmt: skip
        body.append((column, *found))
    yield from rows_of_markdown(heads, body)


def searches(table: Figures) -> Iterator[str]:
    """For each data set the range over the methods: best trial and fresh seeds on validation, and test."""
    heads = ("data set", "best of 24 trials, validation", "its fresh seeds, validation", "test")
    body = []
    for column in sorted({column for _, column in table.searches}):
        rows = [row for row, its in table.searches if its == column]
        found = [[100 * table.searches[row, column][key] for row in rows] for key in ("best", "fresh")]
        found.append([table.mean(row, column) for row in rows])
        body.append((column, *(f"{min(values):.1f} to {max(values):.1f}" for values in found)))
    yield from rows_of_markdown(heads, body)


def data_set(table: Figures, name: str, column: str) -> Iterator[str]:
    """All rows of a data set, the best first: the main figure and p, the others with their difference."""
    control, (main, *others) = CONTROL[name], FIGURES[name]
    beside = {figure: table.beside(control, column, figure) for figure in FIGURES[name]}
    body = []
    for row in table.rows(column):
        cells = [short(row), table.shown_mean(row, column, main)]
        cells.append("" if row == control else difference(beside[main][row]))
        for figure in others:
            cells.append(f"{table.mean(row, column, figure):.2f}")
            if row != control:
                cells[-1] += " " + points(beside[figure][row])
        body.append(cells)
    yield from rows_of_markdown(("method", main, f"- {control}", *others), body)


TITLES = {"labels": "Several labels", "classes": "Classes and aspects"}


def page(folder: Path) -> Iterator[str]:
    """The lines of the page."""
    yield HEAD
    tables = {name: read(folder, name) for name in CONTROL}
    for name, table in tables.items():
        yield from (f"## {TITLES[name]}: beside {CONTROL[name]}", "", *decided(table, CONTROL[name]), "")
        yield from (f"### {TITLES[name]}: what one loss adds to another", "")
        yield from ("With neighbours; without. p is not corrected.", "", *pairs(table, name), "")
        yield from (f"### {TITLES[name]}: what a search finds, and what is left of it", "")
        yield from ("The lowest and the highest of all methods.", "", *searches(table), "")
        for column in table.columns(CONTROL[name]):
            yield from (f"### {column}", "", *data_set(table, name, column), "")


if __name__ == "__main__":
    print("\n".join(page(folder_of_figures(__doc__ or ""))).rstrip())
