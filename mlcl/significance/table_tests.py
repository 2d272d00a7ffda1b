"""Tests of a table's figures: the best cell against the best baseline, and methods over data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcl.config.table.schema import RankTests
from mlcl.significance.baseline_verdict import BaselineVerdict, Contender, Role, compare_baselines
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.rank_tests import LEAST


@dataclass(frozen=True)
class CellScores:
    """The values of one figure of a cell by seed, on validation and on test.

    `data` is equal for cells with the same rows and labels. `complete`: no seed is missing on test.
    """

    row: str
    column: str
    data: str
    baseline: bool
    figure: str
    digits: int
    validation: Mapping[int, float]
    test: Mapping[int, float]
    complete: bool


def table_verdicts(
    scores: Sequence[CellScores], higher: Mapping[str, bool]
) -> list[tuple[str, BaselineVerdict]]:
    """The verdict on each figure of each group of cells with the same data, with what the group shares.

    `higher` says whether more is better, by the name of a figure. Groups without a baseline, or with nothing
    else, have no verdict.
    """
    groups: dict[str, list[CellScores]] = {}
    for each in scores:
        groups.setdefault(each.data, []).append(each)
    found = []
    for group in groups.values():
        shared = _shared(group)
        for name in dict.fromkeys(each.figure for each in group):
            its = [each for each in group if each.figure == name]
            contenders = [_contender(each, shared) for each in its]
            verdict = compare_baselines(contenders, name, "max" if higher[name] else "min", its[0].digits)
            found += [] if verdict is None else [(shared, verdict)]
    return found


def verdict_sentences(scores: Sequence[CellScores], higher: Mapping[str, bool]) -> list[str]:
    """The verdicts in words."""
    verdicts = table_verdicts(scores, higher)
    return [f"{title}: {its.sentence}" if title else its.sentence for title, its in verdicts]


def _shared(scores: Sequence[CellScores]) -> str:
    """The column that all cells are in, or else the row; empty where they share neither."""
    columns, rows = ({getattr(each, side) for each in scores} for side in ("column", "row"))
    return next((names.pop() for names in (columns, rows) if len(names) == 1), "")


def _contender(its: CellScores, shared: str) -> Contender:
    label = ", ".join(name for name in (its.row, its.column) if name != shared) or its.row
    return Contender(label, Role.BASELINE if its.baseline else Role.MODEL, its.validation, its.test)


def ranked_figures(
    scores: Sequence[CellScores], higher: Mapping[str, bool], ranks: RankTests
) -> tuple[dict[str, Any], ...]:
    """One tree for each figure, as `table.json` and the report have it: at least `metric` and `sentences`.

    A cell counts where the figure of each of its seeds is there. A row that the table keeps from some of the
    columns is left out, so that it does not cost the others these data sets.
    """
    names = dict.fromkeys(each.figure for each in scores)
    return tuple(_ranked(scores, name, ranks, higher=higher[name]) for name in names)


def _ranked(scores: Sequence[CellScores], name: str, ranks: RankTests, *, higher: bool) -> dict[str, Any]:
    rows, columns = ([*dict.fromkeys(getattr(each, side) for each in scores)] for side in ("row", "column"))
    control = ranks.control or next((row for row in rows if row not in ranks.leave_out), "")
    asked = Counter(row for row, _ in {(each.row, each.column) for each in scores})
    whole = [
        each for each in scores if each.figure == name and each.complete and asked[each.row] == len(columns)
    ]
    found = compare_methods(
        name,
        {(each.row, each.column): each.test for each in whole},
        rows,
        columns,
        higher=higher,
        control=control,
        rope=ranks.rope,
        digits=max((each.digits for each in whole), default=2),
        leave_out=ranks.leave_out,
    )
    if found is not None:
        return as_dict(found)
    need = f"{LEAST} methods, {control} among them, and {LEAST} data sets with all cells between them"
    return {"metric": name, "sentences": [f"{name} is not ranked over data sets: this needs {need}."]}
