"""Prints docs/leaderboard/data-sets.md: the verdict on every method of every data set.

    python tools/leaderboard_verdicts.py FIGURES > docs/leaderboard/data-sets.md

FIGURES is the folder of `mlcl reproduce leaderboard-... --figures`, docs/leaderboard/figures/three-searches.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

Cell = Mapping[str, Any]
HEAD = """# The leaderboard by data set

`python tools/leaderboard_verdicts.py docs/leaderboard/figures/three-searches` prints this page;
[what it shows](README.md).

Percent of test, the mean of three searches with two seeds each; baselines with the same seeds. Differences
are to the control, in points, with the interval that Holm's correction over the methods of a data set leaves.
In bold: decided.
"""
KEPT = "Of the best trials' lead over the median ones on validation picks keep on fresh seeds:"
ALONE = " without neighbours"
DECIDED = {"helps": "better", "hurts": "worse"}
WORDS = {**DECIDED, "makes no difference": "no difference", "cannot tell": "cannot tell"}


def read(folder: Path) -> dict[str, list[Cell]]:
    """Returns the cells of each data set, in the order of tables and columns.

    Raises SystemExit if the folder has no cells, or has a file that is no JSON document.
    """
    boards: dict[str, list[Cell]] = {}
    for cell in sorted(map(_load, folder.glob("*/*.json")), key=lambda cell: (cell["table"], cell["column"])):
        boards.setdefault(cell["column"], []).append(cell)
    if not boards:
        raise SystemExit(f"{folder}: has no cells (ROW/COLUMN.json)")
    return boards


def _load(file: Path) -> Cell:
    try:
        cell: Cell = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise SystemExit(f"{file}: is no JSON document: {error}") from None
    return cell


def figure_of(cell: Cell, name: str) -> Mapping[str, Any]:
    """Returns the figure of a cell by its name."""
    return next(figure for figure in cell["figures"] if figure["name"] == name)


def verdict_of(cell: Cell, name: str, control: Cell) -> Mapping[str, Any] | None:
    """Returns the verdict on a cell by a figure, or None for the control."""
    metric = figure_of(control, name)["metric"]
    return next((verdict for verdict in cell["verdicts"] if verdict["metric"] == metric), None)


def control_of(cells: Sequence[Cell]) -> Cell:
    """Returns the cell with which the others are compared."""
    names = {verdict["reference"]["label"] for cell in cells for verdict in cell["verdicts"]}
    return next(cell for cell in cells if cell["row"] in names)


def points(verdict: Mapping[str, Any] | None) -> str:
    """Returns the difference with its interval in points, bold if it is decided."""
    if verdict is None:
        return ""
    text = f"{100 * verdict['difference']:+.2f}"
    if verdict["interval"] is not None:
        low, high = (100 * end for end in verdict["interval"])
        text += f" ({low:+.2f} to {high:+.2f})"
    return f"**{text}**" if verdict["answer"] in DECIDED else text


def data_set(cells: Sequence[Cell]) -> Iterator[str]:
    """Yields a row for each method, the best first: its figure and verdict, with neighbours and without."""
    name, control = cells[0]["figures"][0]["name"], control_of(cells)
    yield f"|method|{name}|difference|verdict|{name + ALONE}|difference|verdict|"
    yield "|---|---:|---:|---|---:|---:|---|"
    for cell in sorted(cells, key=lambda cell: -figure_of(cell, name)["mean"]):
        row = [cell["row"]]
        for figure_name in (name, name + ALONE):
            verdict = verdict_of(cell, figure_name, control)
            row += [f"{figure_of(cell, figure_name)['mean']:.2f}", points(verdict)]
            row.append("control" if verdict is None else WORDS[verdict["answer"]])
        yield f"|{'|'.join(row)}|"


def counted(boards: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """Yields a row for each data set: its size, the control, and the verdicts with neighbours."""
    yield "|data set|test rows|control|better|worse|no difference|cannot tell|half an interval|"
    yield "|---|---:|---:|---|---|---:|---:|---:|"
    for column, cells in boards.items():
        name, control = cells[0]["figures"][0]["name"], control_of(cells)
        cell_verdicts = {
            cell["row"]: verdict_of(cell, name, control) for cell in cells if not cell["baseline"]
        }
        verdicts = {row: verdict for row, verdict in cell_verdicts.items() if verdict is not None}
        counts = Counter(verdict["answer"] for verdict in verdicts.values())
        decided_texts = [
            ", ".join(
                f"{row} {100 * verdict['difference']:+.2f}"
                for row, verdict in verdicts.items()
                if verdict["answer"] == answer
            )
            for answer in DECIDED
        ]
        halves = [
            50 * (verdict["interval"][1] - verdict["interval"][0])
            for verdict in verdicts.values()
            if verdict["interval"]
        ]
        median = f"{statistics.median(halves):.2f}" if halves else ""
        other_counts = [str(counts[answer]) for answer in ("makes no difference", "cannot tell")]
        mean = f"{figure_of(control, name)['mean']:.2f}"
        row = [
            column,
            f"{control['test_rows']:,}",
            mean,
            *(text or "none" for text in decided_texts),
            *other_counts,
            median,
        ]
        yield f"|{'|'.join(row)}|"


def kept(table: str, cells: Sequence[Cell]) -> str:
    """Returns a line with the share of a table's leads that picks keep on fresh seeds; empty without one."""
    searches = [cell["search"] for cell in cells if cell.get("search")]
    leads = [(search["best"] - search["median"], search["fresh"] - search["median"]) for search in searches]
    total = sum(lead for lead, _ in leads)
    if total <= 0:
        return ""
    share = sum(kept_lead for _, kept_lead in leads) / total
    median = statistics.median(kept_lead / lead for lead, kept_lead in leads if lead > 0)
    return f"{table} {100 * share:.0f} % (sums over {len(leads)} cells; the median cell {100 * median:.0f} %)"


def least_weights(cells: Sequence[Cell], trials: pd.DataFrame) -> tuple[int, int]:
    """Returns the number of searches with a head that pick the control's setting, and of all with a head.

    The control's setting is the second trial (trial 1), in which the head has the least weight of the space.
    """
    second_trials = trials[(trials["stage"] == "search") & (trials["number"] == 1)]
    weighted_trials = second_trials[
        second_trials["settings"].str.contains(r"objective\.heads\.[^\"]*\.weight")
    ]
    picks = [
        search["pick"].endswith("trial 1")
        for cell in cells
        if cell["row"] in set(weighted_trials["row"])
        for search in cell["search"]["searches"]
    ]
    return sum(picks), len(picks)


def near_control(folder: Path, boards: Mapping[str, Sequence[Cell]]) -> str:
    """Returns a sentence with the counts of `least_weights` over data sets with trials in the folder."""
    counts = {}
    for column, cells in boards.items():
        file = folder / f"{cells[0]['id'].partition('/')[2]}-trials.parquet"
        if file.exists():
            counts[column] = least_weights(cells, pd.read_parquet(file))
    picks, searches = (sum(numbers) for numbers in zip(*counts.values(), strict=True)) if counts else (0, 0)
    if not searches:
        return ""
    details = ", ".join(f"{column} {count}/{total}" for column, (count, total) in counts.items())
    return (
        f"In {picks} of {searches} searches with a head the pick is the control's setting with the least "
        f"weight of the head: {details}."
    )


def page(folder: Path) -> Iterator[str]:
    """Yields the lines of the page."""
    boards = read(folder)
    yield from (HEAD, "## All", "", *counted(boards), "")
    all_cells = [cell for cells in boards.values() for cell in cells]
    tables = dict.fromkeys(cell["table"] for cell in all_cells)
    shares = [kept(table, [cell for cell in all_cells if cell["table"] == table]) for table in tables]
    if any(shares):
        yield from (f"{KEPT} {', '.join(filter(None, shares))}.", "")
    if sentence := near_control(folder, boards):
        yield from (sentence, "")
    for column, cells in boards.items():
        yield from (f"## {column}", "", *data_set(cells), "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print("\n".join(page(Path(sys.argv[1]))).rstrip())
