"""The label spaces of a table: columns of names, of 0 and 1 and of ratings, paths, levels and hierarchies.

Shapes: N rows, L labels.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from mlcl.data.format import LabelSpace
from mlcl.data.hierarchies import hierarchy_of, pairs_in_rows, pairs_of_paths, paths_in_file
from mlcl.data.tables.labels import MISSING_ITEM, CellColumn, Labels, notation_of, read_class_labels
from mlcl.data.tables.notation import FLAGS, MISSING, Cell, Notation, number_of, single_text, text_of
from mlcl.data.tables.options import (
    AspectColumns,
    HierarchyOf,
    MultiLabelColumn,
    PathColumn,
    SingleColumn,
    TableOptions,
)
from mlcl.data.tables.paths import several_paths, two_spellings
from mlcl.data.tables.rows import TableRows
from mlcl.errors import UserError
from mlcl.markup import format_count

ABSENT, BLANK, UNCERTAIN = 0, -1, -2
"""States of a cell in a column of 0 and 1; a state of 1 means that the row has the class."""
JOINED_MISSING = frozenset({"nan", "NaN", "None", "<NA>"})
"""Texts of pandas' missing values, which occur in paths that were joined from several columns."""


@dataclass(frozen=True)
class Ratings:
    """The ratings of every row, one for each aspect; 0 stands for a missing rating."""

    aspects: tuple[str, ...]
    scale: tuple[float, ...]
    values: Sequence[list[float]]

    def space(self) -> LabelSpace:
        """Returns the label space of these ratings, of kind `aspects`."""
        return LabelSpace(kind="aspects", aspects=self.aspects, scale=self.scale)

    def take(self, rows: Sequence[int]) -> Ratings:
        """Returns the ratings of some of the rows."""
        return replace(self, values=[self.values[row] for row in rows])

    def columns(self, name: str, _space: LabelSpace) -> dict[str, Any]:
        """Maps the data set's column for the label space `name` to its values."""
        return {name: self.values}


def read_columns(options: TableOptions, rows: TableRows) -> dict[str, Labels | Ratings]:
    """Reads the labels or ratings of each label space.

    In a hierarchy of single-label levels, class names that occur below several parents become whole paths.
    """
    columns: dict[str, Labels | Ratings] = {}
    for name, label in options.labels.items():
        if isinstance(label, AspectColumns):
            columns[name] = _read_ratings(rows, label)
        elif isinstance(label, PathColumn):
            columns |= _split_paths(rows, name, label)
        elif isinstance(label, SingleColumn | MultiLabelColumn):
            columns[name] = _read_labels(rows, label)
    for label in options.labels.values():
        levels = _hierarchy_levels(label, columns)
        if levels and all(level.kind == "single" for level in levels.values()):
            columns |= _disambiguate(levels, rows)
    return columns


def spaces_of(
    options: TableOptions, rows: TableRows, columns: Mapping[str, Labels | Ratings]
) -> dict[str, LabelSpace]:
    """Returns the label spaces of these columns and their hierarchies, in the order of the options."""
    column_spaces = {name: column.space() for name, column in columns.items()}
    spaces: dict[str, LabelSpace] = {}
    for name, label in options.labels.items():
        levels = _hierarchy_levels(label, columns)
        if isinstance(label, PathColumn):
            names = [level for level in column_spaces if re.fullmatch(rf"{re.escape(name)}_level\d+", level)]
            spaces |= {level: column_spaces[level] for level in names}
            spaces[name] = LabelSpace(kind="hierarchy", levels=tuple(names))
        elif not isinstance(label, HierarchyOf):
            spaces[name] = column_spaces[name]
        elif levels[label.levels[0]].kind == "single":
            spaces[name] = LabelSpace(kind="hierarchy", levels=label.levels)
        else:
            file = label.parents or rows.tables[0].path
            if label.parents is not None:
                classes = column_spaces[label.levels[-1]].classes
                pairs = pairs_of_paths(paths_in_file(file, label.levels, classes))
            else:
                indices = {level: labels.indices(column_spaces[level]) for level, labels in levels.items()}
                pairs = [
                    pairs_in_rows(indices[fine], indices[coarse], column_spaces[fine], column_spaces[coarse])
                    for coarse, fine in pairwise(label.levels)
                ]
            spaces[name] = hierarchy_of(pairs, label.levels, column_spaces, file, f"labels.{name}.parents")
    return spaces


def _hierarchy_levels(label: object, columns: Mapping[str, Labels | Ratings]) -> dict[str, Labels]:
    """Returns the labels of a hierarchy's levels, coarse first; empty for any other label space."""
    by_level = {level: columns[level] for level in label.levels} if isinstance(label, HierarchyOf) else {}
    return {level: labels for level, labels in by_level.items() if isinstance(labels, Labels)}


def check_levels(options: TableOptions) -> None:
    """Raises UserError unless the levels of each hierarchy are all single or all multi-label spaces."""
    for name, label in options.labels.items():
        levels = label.levels if isinstance(label, HierarchyOf) else ()
        multi_label = [space for space, option in options.labels.items() if option.kind == "multi_label"]
        kind = "multi_label" if set(levels[:1]) <= set(multi_label) else "single"
        allowed = [space for space, option in options.labels.items() if option.kind == kind]
        for level in levels:
            if level not in allowed:
                problem, key = f"not a {kind} label space", f"labels.{name}.levels"
                raise UserError(problem, file=options.path[0], key=key, found=level, allowed=allowed)


def _read_labels(rows: TableRows, label: SingleColumn | MultiLabelColumn) -> Labels:
    """Reads the labels of one label space. Raises UserError with the first row that is ambiguous."""
    if isinstance(label, MultiLabelColumn) and label.columns is not None:
        return _read_columns(rows, label, list(label.match_columns(rows.tables[0].columns).values()))
    class_names = tuple(map(text_of, label.classes or ()))  # normalised like the cells
    column = CellColumn.of(rows, label.column or "", class_names)
    notation = notation_of(column, label, class_names)
    if isinstance(label, MultiLabelColumn):
        if notation.form in ("indicators", "shares"):
            return _read_lists(column, label, notation, class_names or tuple(column.class_names))
        states = {state_of(cell) if isinstance(cell, str) else None for cell in column.first}
        if not class_names and states >= {0, 1} and None not in states:
            return _read_columns(rows, label.model_copy(update={"column": None}), [column.name])
    return read_class_labels(column, label, notation, class_names)


def _read_columns(rows: TableRows, label: MultiLabelColumn, names: Sequence[str]) -> Labels:
    """Reads labels from one column for each class, whose cells are 0, 1 or a share."""
    return _build_labels(rows, label, names, [_read_texts(rows, name) for name in names], names)


def _read_lists(
    column: CellColumn, label: MultiLabelColumn, notation: Notation, class_names: tuple[str, ...]
) -> Labels:
    """Reads labels from lists, or texts with separators, that hold 0, 1 or a share for each class."""
    lists = {
        cell: () if cell in MISSING else tuple(part.strip() for part in notation.labels(cell))
        for cell in column.first
    }
    size = len(class_names) if class_names else max(map(len, lists.values()))
    for cell, items in lists.items():
        if len(items) != size and cell not in MISSING:
            more = " classes are named" if class_names else " numbers, as the longest has"
            raise column.error(cell, "a number for each class, but not as many", len(items), f"{size}{more}")
    names = class_names or tuple(map(str, range(size)))
    texts = [[items[i] if (items := lists[cell]) else "" for cell in column.of_row] for i in range(size)]
    labels = _build_labels(column.rows, label, [column.name] * size, texts, names)
    numbering = "" if class_names else f", numbered 0 to {size - 1}: name them with classes"
    note = f"{column.name}: {size} numbers a row are 0 and 1 for each of {size} classes{numbering}"
    return replace(labels, notes=(note, *labels.notes))


def _build_labels(
    rows: TableRows, label: MultiLabelColumn, columns: Sequence[str], texts: Sequence[Sequence[str]],
    names: Sequence[str],
) -> Labels:  # fmt: skip
    """Builds labels from `texts` (L, N), which has a cell of 0 or 1 for each class and row.

    `columns` are the classes' columns, for messages. Raises UserError if no cell is 1, and for a blank or -1
    for which the options name no treatment.
    """
    states = [
        _read_states(rows, name, cells, label.threshold) for name, cells in zip(columns, texts, strict=True)
    ]
    state_NL = np.stack(states, axis=1)
    if not (state_NL == 1).any():
        raise UserError("no row has a label", file=rows.tables[0].path, key=columns[0])
    unsure_NL, left_out, notes = np.zeros_like(state_NL, dtype=bool), set[int](), list[str]()
    subject = label.column or "labels"
    for value, option, meaning in ((BLANK, "missing", "missing"), (UNCERTAIN, "uncertain", "-1, uncertain")):
        match_NL = state_NL == value
        if not match_NL.any():
            continue
        treatment = getattr(label, option)
        if treatment is None and (value == UNCERTAIN or (state_NL == ABSENT).any()):
            row, index = (int(indices[0]) for indices in np.nonzero(match_NL))
            problem = f"{match_NL.sum():,} of {match_NL.size:,} cells of 0 and 1 are {meaning}, the first"
            allowed = f"{option} negative, leave_out or ignore"
            raise rows.error(row, problem, columns[index], allowed=allowed)
        row_N = np.flatnonzero(match_NL.any(1))
        consequence = {
            None: "no label, as no cell has 0",
            "negative": "no label",
            "leave_out": f"their {len(row_N):,} rows are left out",
            "ignore": "loss and metrics leave them out",
        }[treatment]
        count_text = f"{match_NL.sum():,} of {match_NL.size:,} cells ({match_NL.mean():.1%})"
        notes.append(f"{subject}: {count_text} are {meaning}: {consequence}")
        left_out |= set(row_N.tolist()) if treatment == "leave_out" else set()
        unsure_NL |= match_NL & (treatment == "ignore")
    if label.threshold is not None:
        notes.append(f"{subject}: shares from {label.threshold:g} on are labels")
    return Labels(
        "multi_label",
        _label_names(state_NL == 1, names),
        tuple(names),
        tuple(notes),
        _label_names(unsure_NL, names) if unsure_NL.any() else None,
        frozenset(left_out),
    )


def _label_names(label_NL: np.ndarray[Any, Any], names: Sequence[str]) -> list[tuple[str, ...]]:
    patterns, number_N = np.unique(label_NL, axis=0, return_inverse=True)
    labels = [tuple(names[i] for i in np.flatnonzero(row).tolist()) for row in patterns]
    return [labels[number] for number in number_N.ravel().tolist()]


def _read_states(
    rows: TableRows, column: str, texts: Sequence[str], threshold: float | None
) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Returns each row's state (N,): 1, ABSENT, BLANK or UNCERTAIN. Raises UserError for other cells."""
    number_N, cells = pd.factorize(np.asarray(texts, dtype=object))
    states = []
    for text in cells:
        state, number = state_of(text), number_of(text)
        if threshold is not None and number is not None and 0 <= number <= 1:
            state = int(number >= threshold)
        if state is None:
            is_share = number is not None and 0 < number < 1
            problem = "a share: say from which on it is a label" if is_share else "neither 0 nor 1"
            allowed = "threshold 0.5, or another" if is_share else ["1", "0", "true", "false", "blank", "-1"]
            raise rows.error(texts.index(text), problem, column, text, allowed)
        states.append(state)
    return np.asarray(states, dtype=np.int8)[number_N]


def state_of(text: str) -> int | None:
    """Parses a cell of a column of 0 and 1: returns 1, ABSENT, BLANK or UNCERTAIN; None for other texts."""
    if text in MISSING:
        return BLANK
    if text.lower() in FLAGS:
        return int(FLAGS[text.lower()])
    return {0.0: ABSENT, 1.0: 1, -1.0: UNCERTAIN}.get(number_of(text))  # type: ignore[arg-type]


def _read_texts(rows: TableRows, column: str) -> list[str]:
    """Converts a column's values to texts. Raises UserError for a value that is no text or number."""
    texts = []
    for row, value in enumerate(rows.frame[column]):
        try:
            texts.append(text_of(value))
        except ValueError as error:
            raise rows.error(row, str(error), column) from None
    return texts


def _read_ratings(rows: TableRows, label: AspectColumns) -> Ratings:
    """Reads the ratings of every row. Raises UserError for a value that is not on the scale."""
    aspects = tuple(label.match_columns(rows.tables[0].columns).values())
    column_ratings = []
    for column in aspects:
        texts = _read_texts(rows, column)
        values = {text: 0.0 if text in MISSING else number_of(text) for text in dict.fromkeys(texts)}
        for text, value in values.items():
            if value is None or (value != 0 and value not in label.scale):
                allowed = [f"{step:g}" for step in label.scale]
                raise rows.error(texts.index(text), "not a rating", column, text, allowed)
        column_ratings.append([values[text] for text in texts])
    return Ratings(aspects, label.scale, [list(row) for row in zip(*column_ratings, strict=True)])


def _split_paths(rows: TableRows, name: str, label: PathColumn) -> dict[str, Labels]:
    """Splits a column of paths, of which some may end early, into spaces `<name>_level1` and so on."""
    column = CellColumn.of(rows, label.column)
    paths: dict[Cell, list[str]] = {}
    for cell in column.first:
        text = "" if cell == () else single_text(cell)
        if text is None or several_paths([text], label.separator):
            raise column.error(cell, "several paths in a row", text or list(cell), "one path")
        if cell and isinstance(cell, tuple) and text in MISSING:
            raise column.error(cell, MISSING_ITEM, list(cell), "one path")
        parts = [] if text in MISSING else [part.strip() for part in text.split(label.separator)]
        while parts and parts[-1] in JOINED_MISSING:
            parts.pop()  # the path ends early
        if not all(parts) or JOINED_MISSING & set(parts):
            raise column.error(cell, "a path with an empty level", text, f"names between '{label.separator}'")
        paths[cell] = parts
    for pair in two_spellings(paths.values()):
        first, second = (next(cell for cell in paths if paths[cell][: len(path)] == path) for path in pair)
        spellings, more = [path[-1] for path in pair], f" and {rows.place(column.first[first])}"
        raise column.error(second, "a class is spelt in two ways", spellings, "one of them", more)
    depth = max(map(len, paths.values()))
    if depth == 0:
        raise UserError("no row has a label", file=rows.tables[0].path, key=label.column)
    n_shorter = sum(0 < len(paths[cell]) < depth for cell in column.of_row)
    notes = [f"{label.column}: {format_count(depth, 'level')}, divided at '{label.separator}'", *column.notes]
    if n_shorter:
        notes.append(
            f"{label.column}: {format_count(n_shorter, 'row')} have a path of fewer than {depth} levels"
        )
    columns = [[tuple(paths[cell][level : level + 1]) for cell in column.of_row] for level in range(depth)]
    levels = {
        f"{name}_level{level + 1}": Labels("single", values, None, tuple(notes))
        for level, values in enumerate(columns)
    }
    return _disambiguate(levels, rows)


def _disambiguate(levels: Mapping[str, Labels], rows: TableRows) -> dict[str, Labels]:
    """Renames classes below several parents to whole paths; rows without the coarser class lose the finer."""
    labels = dict(levels)
    for coarse, fine in pairwise(levels):
        parent_counts: dict[str, Counter[str]] = defaultdict(Counter)
        pairs = list(zip(labels[coarse].names, labels[fine].names, strict=True))
        for parent, child in pairs:
            if parent and child:
                parent_counts[child[0]][parent[0]] += 1
        shared = {name: parents for name, parents in parent_counts.items() if len(parents) > 1}
        if not shared:
            continue
        name, parents = next(iter(shared.items()))
        if labels[fine].classes is not None:
            row = next(row for row, (_, child) in enumerate(pairs) if child == (name,))
            problem = f"a class of {fine} has two parents in {coarse}"
            raise rows.error(row, problem, fine, [name, *parents], "one, or no given classes")
        new_names = [
            ((f"{parent[0]}/{child[0]}",) if parent else ()) if child and child[0] in shared else child
            for parent, child in pairs
        ]
        n_lost = sum(bool(child) and not new for (_, child), new in zip(pairs, new_names, strict=True))
        parents_text = ", ".join(f"{parent} ({count})" for parent, count in parents.most_common(3))
        note = f"{fine}: {format_count(len(shared), 'name')} below several classes of {coarse} are told "
        note += f"apart by their path, such as {name} below {parents_text}"
        if n_lost:
            note += f"; {format_count(n_lost, 'row')} with such a name have no class of {coarse} and get none"
        labels[fine] = replace(labels[fine], names=new_names, notes=(*labels[fine].notes, note))
    return labels
