"""Which cells count where parts of one table were run in several places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.config.table import Cell
from mlcl.results.table_result import CellResult, FigureResult
from mlcl.service.tables.cell_files import Part, read_parts
from mlcl.service.tables.origin import setting_hash
from mlcl.service.tables.plan import TablePlan

DIFFERENCES = {
    "setting": "other jobs", "fingerprint": "other data", "mlcl": "another mlcl", "commit": "other code"
}  # fmt: skip


@dataclass(frozen=True)
class Merged:
    """The cells of a table out of several places, and what is to be told about them, a line each."""

    cells: tuple[CellResult, ...]
    notes: tuple[str, ...]


def merge_places(plan: TablePlan, places: Sequence[Path]) -> Merged:
    """The cells of the table, each from one of the places that have seeds of it.

    The one with the job that the table has now comes first, then that with most seeds, then the first named.
    Raises UserError for a place without cells of the table.
    """
    parts = [part for place in places for part in read_parts(place, plan.name, plan.table.unit)]
    notes: dict[str, list[str]] = {}
    cells, taken = [], list[CellResult]()
    for cell in plan.cells:
        asked = setting_hash(cell, plan.table.seed_keys)
        found = [part for part in parts if part.cell.id == cell.id]
        found.sort(key=lambda part: (not part.seeds, _setting(part.cell) != asked, -part.seeds))
        if not found:
            cells.append(_shown(plan, cell, None))
            continue
        first = found[0]
        cells.append(_shown(plan, cell, first.cell))
        taken.append(first.cell)
        if _setting(first.cell) != asked:
            notes.setdefault(f"{first.place} has other jobs than the table now", []).append(cell.id)
        for other in found[1:]:
            shared = other.cell.runs == first.cell.runs and other.place == first.place
            if not other.seeds or shared:
                continue  # it has nothing, or is a part beside its whole
            notes.setdefault(_compared(first, other), []).append(cell.id)
    told = [f"{note}: {', '.join(dict.fromkeys(ids))}." for note, ids in notes.items()]
    return Merged(tuple(cells), (*told, *_mixtures(taken)))


def _setting(cell: CellResult) -> str:
    return cell.origin.setting if cell.origin else ""


def _shown(plan: TablePlan, cell: Cell, found: CellResult | None) -> CellResult:
    """A cell with the figures and seeds that the table asks for, beside what is printed."""
    known = {(its.name, its.metric): its for its in found.figures} if found else {}
    count = len(cell.jobs)

    def seeds(values: Iterable[float | None]) -> tuple[float | None, ...]:
        return (*values, *[None] * count)[:count]

    figures = []
    for figure in cell.figures:
        its = known.get((figure.name, figure.metric))
        values, validation = (its.values, its.validation) if its else ((), ())
        tolerance, digits = plan.tolerance(figure.name), plan.table.digits_of(figure.name)
        shown = FigureResult(figure.name, figure.metric, figure.printed, seeds(values), tolerance, digits)
        figures.append(replace(shown, validation=seeds(validation)))
    if found is None:
        none = (None,) * count
        return CellResult(cell.row, cell.column, cell.id, tuple(figures), none, ("in none of the places",))
    runs = (*found.runs, *[None] * count)[:count]
    return replace(found, row=cell.row, column=cell.column, figures=tuple(figures), runs=runs)


def _compared(first: Part, other: Part) -> str:
    """A line about a cell that is in two places."""
    a, b = first.cell.origin, other.cell.origin
    differing = [text for name, text in DIFFERENCES.items() if getattr(a, name) != getattr(b, name)]
    why = f" ({', '.join(differing)})" if differing else ""
    if _alike(first.cell, other.cell):
        return f"{other.place} and {first.place} have the same cells{why}, which count once"
    return f"{other.place} has other figures than {first.place}{why}; those of {first.place} count"


def _alike(a: CellResult, b: CellResult) -> bool:
    """Whether the figures of all seeds that both have are equal."""
    theirs = {figure.name: figure for figure in b.figures}
    pairs = [
        (x, y)
        for figure in a.figures
        if figure.name in theirs
        for x, y in zip(figure.values, theirs[figure.name].values, strict=False)
    ]
    return all(x is None or y is None or math.isclose(x, y, rel_tol=1e-9) for x, y in pairs)


def _mixtures(cells: Sequence[CellResult]) -> list[str]:
    """What the cells of one table should share, and do not: version, code; in a column the data."""
    found = []
    for name, what in (("mlcl", "versions of mlcl"), ("commit", "commits")):
        counts = Counter(filter(None, (getattr(cell.origin, name) for cell in cells)))
        if len(counts) > 1:
            each = ", ".join(f"{value} ({count})" for value, count in sorted(counts.items()))
            found.append(f"The cells are of several {what}: {each}.")
    for column in dict.fromkeys(cell.column for cell in cells):
        prints = sorted({cell.origin.fingerprint for cell in cells if cell.column == column and cell.origin})
        if len(prints) > 1:
            found.append(f"The cells of {column} are of different data: fingerprints {', '.join(prints)}.")
    return found
