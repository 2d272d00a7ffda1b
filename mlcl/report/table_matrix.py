"""A table's figures as a matrix of rows and columns, the best cell of each data set in bold."""

from __future__ import annotations

import pandas as pd

from mlcl.report.document import Block, Cell, Table, Text, number_cell
from mlcl.report.table_data import TableData, TableFigure

RANK = "average rank"


def matrix_blocks(data: TableData, name: str) -> tuple[Block, ...]:
    """The matrix of the figure `name`: means over seeds ± sample standard deviation.

    Cells that saw the same data are compared: the best one is bold, and a cell is shaded the more, the nearer
    it is to it. Where all rows or all columns are data sets without a missing cell, the methods on the other
    side have average ranks, 1 the best.
    """
    figures = {(each.row, each.column): each for each in data.figures if each.name == name}
    frame = pd.DataFrame(
        [(*place, each.data, each.mean) for place, each in figures.items()],
        columns=["row", "column", "data", "mean"],
    ).astype({"mean": float})
    sign = 1.0 if data.higher[name] else -1.0
    scores = (sign * frame["mean"]).groupby(frame["data"])
    low, high = scores.transform("min"), scores.transform("max")
    spread = high - low
    frame["best"] = (sign * frame["mean"] == high) & (spread > 0)
    frame["shade"] = ((sign * frame["mean"] - low) / spread.where(spread > 0)).fillna(0.0)
    frame["rank"] = scores.rank(ascending=False)
    looks = zip(frame["best"].tolist(), frame["shade"].tolist(), strict=True)
    look = {place: _cell(figures[place], *its) for place, its in zip(figures, looks, strict=True)}
    rows, columns = (list(dict.fromkeys(frame[side])) for side in ("row", "column"))
    row_ranks, column_ranks = _ranks(frame, "row", "column"), _ranks(frame, "column", "row")
    body = [
        [Cell(row), *(look.get((row, each), Cell("")) for each in columns), *_rank_cells(row_ranks, [row])]
        for row in rows
    ]
    if len(column_ranks):
        body.append([Cell(RANK), *_rank_cells(column_ranks, columns)])
    heads = (name, *columns, *([RANK] if len(row_ranks) else []))
    better = "higher" if data.higher[name] else "lower"
    about = Text(f"{name} in {data.unit}, mean ± sd over seeds; {better} is better.")
    return (about, Table(heads, tuple(map(tuple, body))))


def _ranks(frame: pd.DataFrame, methods: str, sets: str) -> pd.Series[float]:
    """The average rank of each of the `methods`, row or column; empty where the `sets` are no data sets."""
    several = min(frame[methods].nunique(), frame[sets].nunique()) > 1
    whole = len(frame) == frame[methods].nunique() * frame[sets].nunique() and bool(
        frame["mean"].notna().all()
    )
    same = bool((frame.groupby(sets)["data"].nunique() == 1).all())
    if not (several and whole and same):
        return pd.Series(dtype=float)
    return frame.groupby(methods)["rank"].mean()


def _rank_cells(ranks: pd.Series[float], names: list[str]) -> list[Cell]:
    return [
        Cell(f"{ranks[each]:.2f}", best=bool(ranks[each] == ranks.min())) for each in names if each in ranks
    ]


def _cell(figure: TableFigure, best: bool, shade: float) -> Cell:
    if figure.mean is None:
        return Cell("")
    its = number_cell(figure.mean, figure.metric, figure.run_ids, "mean", form=f".{figure.digits}f")
    spread = "" if figure.deviation is None else f" ± {figure.deviation:.{figure.digits}f}"
    return Cell(its.text + spread, its.run_id, its.value, its.metric, its.runs, its.statistic, best, shade)
