"""Verdicts on a table's cells against its control, or else against its best fitted baseline or first cell.

Rank tests compare the rows of a table, its methods, over the columns, its data sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from mlcl.config.table.schema import RankTests
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.compared_setting import SEEDS, SPLIT_SEED, VALIDATION_SEED, margin_of
from mlcl.significance.arms import Arm, Outcome, search_deviation
from mlcl.significance.method_comparison import compare_methods
from mlcl.significance.method_comparison_text import as_dict
from mlcl.significance.paired_arms import differences_of
from mlcl.significance.rank_tests import LEAST
from mlcl.significance.verdict import Conclusion, Verdict, compare_family

MOST_SENTENCES = 8
"""The largest number of verdicts that are written one by one above a table."""
COUNTED = {
    Conclusion.HELPS: "better",
    Conclusion.HURTS: "worse",
    Conclusion.NO_DIFFERENCE: "without a difference",
    Conclusion.CANNOT_TELL: "undecided",
}


def table_verdicts(
    cells: Sequence[CellResult], higher: Mapping[str, bool], control: str = "", unit: str = "percent"
) -> list[tuple[str, Verdict]]:
    """Compares cells that have the same data with a reference among them, for each figure.

    If the control is a row, only cells of one column are compared with each other; if it is a column, only
    cells of one row.

    Returns pairs of the row or column that the compared cells share (empty for none) and a verdict. Verdicts
    have the values of the trainings' metrics, not the table's unit. Holm's correction is over the verdicts on
    one figure with one reference. Cells whose `data` is empty are left out.

    Args:
        cells: The cells of a table.
        higher: Whether larger values are better, keyed by the name of a figure.
        control: The row or column with which others are compared. If empty, the fitted baseline with the best
            mean on validation, or else the first cell with a value.
        unit: The unit of the figures, `percent` or `share`.
    """
    groups: dict[tuple[str, str], list[CellResult]] = {}
    rows, columns = ({getattr(cell, side) for cell in cells} for side in ("row", "column"))
    for cell in cells:
        group_name = cell.column if control in rows else cell.row if control in columns else ""
        if cell.data:
            groups.setdefault((cell.data, group_name), []).append(cell)
    return [
        (shared, verdict)
        for group in groups.values()
        for shared in [_shared_name(group)]
        for name in dict.fromkeys(figure.name for cell in group for figure in cell.figures)
        for verdict in _compare_family(group, name, shared, control, unit, higher=higher[name])
    ]


def conclusions_of(verdicts: Sequence[tuple[str, Verdict]]) -> list[str]:
    """Returns the verdicts as sentences; if there are many, counts of answers by metric and reference."""
    if len(verdicts) <= MOST_SENTENCES:
        return sentences_of(verdicts)
    counts: dict[tuple[str, str], Counter[Conclusion]] = {}
    for _, verdict in verdicts:
        counts.setdefault((verdict.metric, verdict.reference.label), Counter())[verdict.answer] += 1
    return [
        f"{metric}, {answer_counts.total()} verdicts against {reference}: "
        + ", ".join(f"{answer_counts[answer]} {word}" for answer, word in COUNTED.items())
        + "."
        for (metric, reference), answer_counts in counts.items()
    ]


def sentences_of(verdicts: Sequence[tuple[str, Verdict]]) -> list[str]:
    """Returns one sentence for each verdict; the shared row or column, if any, stands before it."""
    return [f"{shared}: {verdict.sentence}" if shared else verdict.sentence for shared, verdict in verdicts]


def _compare_family(
    cells: Sequence[CellResult], name: str, shared: str, control: str, unit: str, *, higher: bool
) -> tuple[Verdict, ...]:
    """Returns the verdicts on one figure of cells with the same data; none if the reference has no value."""
    figures = {
        label_in(cell, shared): (cell, figure)
        for cell in cells
        for figure in cell.figures
        if figure.name == name and figure.by_seed
    }
    reference_label = control or _choose_reference(figures, higher=higher)
    if reference_label not in figures:
        return ()
    (cell, figure), mode = figures.pop(reference_label), "max" if higher else "min"
    reference = _to_arm(reference_label, cell, figure, unit)
    others = [_to_arm(label, *entry, unit, like=cell) for label, entry in figures.items()]
    seeds = _has_seeded_draws(cell)
    pairs = differences_of(reference, others, figure.metric, mode, searches=True, seeds=seeds)
    margin = margin_of(cell.params, figure.metric)
    return compare_family(
        pairs, "settings", metric=figure.metric, mode=mode, margin=margin, rows=cell.test_rows
    )


def _shared_name(cells: Sequence[CellResult]) -> str:
    """Returns the name of the column that all cells share, else of the row; empty if they share neither."""
    columns, rows = ({getattr(cell, side) for cell in cells} for side in ("column", "row"))
    return next((names.pop() for names in (columns, rows) if len(names) == 1), "")


def label_in(cell: CellResult, shared: str) -> str:
    """Returns a cell's label in verdicts: its row and column, without the one named `shared`."""
    return ", ".join(name for name in (cell.row, cell.column) if name != shared) or cell.row


def _choose_reference(figures: Mapping[str, tuple[CellResult, FigureResult]], *, higher: bool) -> str:
    """Returns the label of the fitted baseline with the best validation mean, or else of the first cell."""
    scores = {
        label: fmean(figure.validation_by_seed.values()) * (1 if higher else -1)
        for label, (cell, figure) in figures.items()
        if cell.baseline and figure.validation_by_seed
    }
    return max(scores, key=lambda label: scores[label], default=next(iter(figures), ""))


def _to_arm(
    label: str, cell: CellResult, figure: FigureResult, unit: str, *, like: CellResult | None = None
) -> Arm:
    """Returns the cell as an arm, with the outcomes of its seeds grouped by search.

    A fitted baseline with equal values for all seeds becomes a single outcome. A cell that is not tuned but
    has the seeds of `like` is grouped by the searches of `like`.
    """
    scale = 100.0 if unit == "percent" else 1.0
    splits_differ = any(SPLIT_SEED in training.changes for training in cell.trainings)
    outcomes = {}
    for position, value in figure.by_seed.items():
        training = cell.training(position)
        blocks = () if training is None or splits_differ else training.blocks.get(figure.metric, ())
        seed = position if training is None or training.seed is None else training.seed
        job = "" if training is None else training.job_hash
        outcomes[position] = Outcome(seed, value / scale, tuple(blocks), job)
    if cell.baseline and len({outcome.value for outcome in outcomes.values()}) == 1:
        return Arm(label, (tuple(outcomes.values())[:1],), fitted=True, searched=False)
    same_seeds = like is not None and cell.search is None and _has_same_seeds(cell, like)
    groups = like.searches if same_seeds and like is not None else cell.searches
    searches = tuple(
        tuple(outcomes[position] for position in positions if position in outcomes) for positions in groups
    )
    deviation = search_deviation(figure.metric)
    return Arm(label, searches, searched=cell.search is not None, search_deviation=deviation)


def _has_same_seeds(cell: CellResult, other: CellResult) -> bool:
    """Whether both cells list the same seeds in the same order, apart from missing runs."""
    positions = range(min(len(cell.runs), len(other.runs)))
    pairs = [(cell.training(position), other.training(position)) for position in positions]
    seeds = [
        (training.seed, other_training.seed)
        for training, other_training in pairs
        if training is not None and other_training is not None
    ]
    known_pairs = [
        (seed, other_seed) for seed, other_seed in seeds if seed is not None and other_seed is not None
    ]
    return (
        len(cell.runs) == len(other.runs)
        and bool(known_pairs)
        and all(seed == other_seed for seed, other_seed in known_pairs)
    )


def _has_seeded_draws(cell: CellResult) -> bool:
    """Whether the trainings of a cell differ in a seed of data sampling other than `data.validation_seed`."""
    keys = {key for training in cell.trainings for key in training.changes if SEEDS.fullmatch(key)}
    return bool(keys - {VALIDATION_SEED})


def ranked_figures(
    cells: Sequence[CellResult], higher: Mapping[str, bool], ranks: RankTests
) -> tuple[dict[str, Any], ...]:
    """Ranks the rows of a table (methods) over its columns (data sets), for each figure, as `ranks` asks.

    Returns a dict for each figure as `table.json` has it, with at least `metric` and `sentences`. A cell
    counts if all of its seeds have the figure. A row that lacks the cell of some column in the table is left
    out, so that the other rows keep this data set. `higher` says whether larger values of a figure are
    better.
    """
    names = dict.fromkeys(figure.name for cell in cells for figure in cell.figures)
    return tuple(_rank_methods(cells, name, ranks, higher=higher[name]) for name in names)


def _rank_methods(
    cells: Sequence[CellResult], name: str, ranks: RankTests, *, higher: bool
) -> dict[str, Any]:
    rows, columns = ([*dict.fromkeys(getattr(cell, side) for cell in cells)] for side in ("row", "column"))
    control = ranks.control or next((row for row in rows if row not in ranks.leave_out), "")
    incomplete_rows = {
        row for row in rows if len({cell.column for cell in cells if cell.row == row}) < len(columns)
    }
    complete_figures = [
        (cell, figure)
        for cell in cells
        for figure in cell.figures
        if figure.name == name and None not in figure.values and cell.row not in incomplete_rows
    ]
    comparison = compare_methods(
        name,
        {(cell.row, cell.column): figure.by_seed for cell, figure in complete_figures},
        rows,
        columns,
        higher=higher,
        control=control,
        rope=ranks.rope,
        digits=max((figure.digits for _, figure in complete_figures), default=2),
        leave_out=ranks.leave_out,
    )
    if comparison is not None:
        return as_dict(comparison)
    need = f"{LEAST} methods, {control} among them, and {LEAST} data sets with all cells between them"
    return {"metric": name, "sentences": [f"{name} is not ranked over data sets: this needs {need}."]}
