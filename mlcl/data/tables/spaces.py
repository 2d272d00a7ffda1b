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
from mlcl.data.tables.labels import MISSING_ITEM, CellColumn, Labels, named_labels, notation_of
from mlcl.data.tables.notation import FLAGS, MISSING, Cell, Notation, alone, number_of, text_of
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
from mlcl.markup import counted

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

    def only(self, rows: Sequence[int]) -> Ratings:
        """Returns the ratings of some of the rows."""
        return replace(self, values=[self.values[row] for row in rows])

    def columns(self, name: str, _space: LabelSpace) -> dict[str, Any]:
        """Maps the data set's column for the label space `name` to its values."""
        return {name: self.values}


def read_columns(options: TableOptions, rows: TableRows) -> dict[str, Labels | Ratings]:
    """Reads the labels or ratings of each label space.

    In a hierarchy of single-label levels, class names that occur below several parents become whole paths.
    """
    found: dict[str, Labels | Ratings] = {}
    for name, label in options.labels.items():
        if isinstance(label, AspectColumns):
            found[name] = _ratings(rows, label)
        elif isinstance(label, PathColumn):
            found |= _levels_of(rows, name, label)
        elif isinstance(label, SingleColumn | MultiLabelColumn):
            found[name] = _labels(rows, label)
    for label in options.labels.values():
        levels = _levels(label, found)
        if levels and all(its.kind == "single" for its in levels.values()):
            found |= _tell_apart(levels, rows)
    return found


def spaces_of(
    options: TableOptions, rows: TableRows, columns: Mapping[str, Labels | Ratings]
) -> dict[str, LabelSpace]:
    """Returns the label spaces of these columns and their hierarchies, in the order of the options."""
    found = {name: its.space() for name, its in columns.items()}
    spaces: dict[str, LabelSpace] = {}
    for name, label in options.labels.items():
        levels = _levels(label, columns)
        if isinstance(label, PathColumn):
            below = [level for level in found if re.fullmatch(rf"{re.escape(name)}_level\d+", level)]
            spaces |= {level: found[level] for level in below}
            spaces[name] = LabelSpace(kind="hierarchy", levels=tuple(below))
        elif not isinstance(label, HierarchyOf):
            spaces[name] = found[name]
        elif levels[label.levels[0]].kind == "single":
            spaces[name] = LabelSpace(kind="hierarchy", levels=label.levels)
        else:
            file = label.parents or rows.tables[0].path
            if label.parents is not None:
                classes = found[label.levels[-1]].classes
                pairs = pairs_of_paths(paths_in_file(file, label.levels, classes))
            else:
                own = {level: its.indices(found[level]) for level, its in levels.items()}
                pairs = [
                    pairs_in_rows(own[fine], own[coarse], found[fine], found[coarse])
                    for coarse, fine in pairwise(label.levels)
                ]
            spaces[name] = hierarchy_of(pairs, label.levels, found, file, f"labels.{name}.parents")
    return spaces


def _levels(label: object, columns: Mapping[str, Labels | Ratings]) -> dict[str, Labels]:
    """Returns the labels of a hierarchy's levels, coarse first; empty for any other label space."""
    its = {level: columns[level] for level in label.levels} if isinstance(label, HierarchyOf) else {}
    return {level: labels for level, labels in its.items() if isinstance(labels, Labels)}


def check_levels(options: TableOptions) -> None:
    """Raises UserError unless the levels of each hierarchy are all single or all multi-label spaces."""
    for name, label in options.labels.items():
        levels = label.levels if isinstance(label, HierarchyOf) else ()
        several = [other for other, its in options.labels.items() if its.kind == "multi_label"]
        kind = "multi_label" if set(levels[:1]) <= set(several) else "single"
        fitting = [other for other, its in options.labels.items() if its.kind == kind]
        for level in levels:
            if level not in fitting:
                problem, key = f"not a {kind} label space", f"labels.{name}.levels"
                raise UserError(problem, file=options.path[0], key=key, found=level, allowed=fitting)


def _labels(rows: TableRows, label: SingleColumn | MultiLabelColumn) -> Labels:
    """Reads the labels of one label space. Raises UserError with the first row that is ambiguous."""
    if isinstance(label, MultiLabelColumn) and label.columns is not None:
        return _from_columns(rows, label, list(label.wanted(rows.tables[0].columns).values()))
    given = tuple(map(text_of, label.classes or ()))  # normalised like the cells
    column = CellColumn.of(rows, label.column or "", given)
    notation = notation_of(column, label, given)
    if isinstance(label, MultiLabelColumn):
        if notation.form in ("indicators", "shares"):
            return _from_lists(column, label, notation, given or tuple(column.class_names))
        states = {state_of(cell) if isinstance(cell, str) else None for cell in column.first}
        if not given and states >= {0, 1} and None not in states:
            return _from_columns(rows, label.model_copy(update={"column": None}), [column.name])
    return named_labels(column, label, notation, given)


def _from_columns(rows: TableRows, label: MultiLabelColumn, names: Sequence[str]) -> Labels:
    """Reads labels from one column for each class, whose cells are 0, 1 or a share."""
    return _indicated(rows, label, names, [_texts_of(rows, name) for name in names], names)


def _from_lists(
    column: CellColumn, label: MultiLabelColumn, notation: Notation, given: tuple[str, ...]
) -> Labels:
    """Reads labels from lists, or texts with separators, that hold 0, 1 or a share for each class."""
    lists = {
        cell: () if cell in MISSING else tuple(part.strip() for part in notation.labels(cell))
        for cell in column.first
    }
    size = len(given) if given else max(map(len, lists.values()))
    for cell, its in lists.items():
        if len(its) != size and cell not in MISSING:
            more = " classes are named" if given else " numbers, as the longest has"
            raise column.error(cell, "a number for each class, but not as many", len(its), f"{size}{more}")
    names = given or tuple(map(str, range(size)))
    texts = [[its[i] if (its := lists[cell]) else "" for cell in column.of_row] for i in range(size)]
    made = _indicated(column.rows, label, [column.name] * size, texts, names)
    numbered = "" if given else f", numbered 0 to {size - 1}: name them with classes"
    said = f"{column.name}: {size} numbers a row are 0 and 1 for each of {size} classes{numbered}"
    return replace(made, notes=(said, *made.notes))


def _indicated(
    rows: TableRows, label: MultiLabelColumn, columns: Sequence[str], texts: Sequence[Sequence[str]],
    names: Sequence[str],
) -> Labels:  # fmt: skip
    """Builds labels from `texts` (L, N), which has a cell of 0 or 1 for each class and row.

    `columns` are the classes' columns, for messages. Raises UserError if no cell is 1, and for a blank or -1
    for which the options name no treatment.
    """
    states = [_states(rows, name, its, label.threshold) for name, its in zip(columns, texts, strict=True)]
    state_NL = np.stack(states, axis=1)
    if not (state_NL == 1).any():
        raise UserError("no row has a label", file=rows.tables[0].path, key=columns[0])
    unsure_NL, left_out, notes = np.zeros_like(state_NL, dtype=bool), set[int](), list[str]()
    what = label.column or "labels"
    for value, option, meaning in ((BLANK, "missing", "missing"), (UNCERTAIN, "uncertain", "-1, uncertain")):
        here_NL = state_NL == value
        if not here_NL.any():
            continue
        treatment = getattr(label, option)
        if treatment is None and (value == UNCERTAIN or (state_NL == ABSENT).any()):
            row, at = (int(its[0]) for its in np.nonzero(here_NL))
            problem = f"{here_NL.sum():,} of {here_NL.size:,} cells of 0 and 1 are {meaning}, the first"
            allowed = f"{option} negative, leave_out or ignore"
            raise rows.error(row, problem, columns[at], allowed=allowed)
        row_N = np.flatnonzero(here_NL.any(1))
        done = {
            None: "no label, as no cell has 0",
            "negative": "no label",
            "leave_out": f"their {len(row_N):,} rows are left out",
            "ignore": "loss and metrics leave them out",
        }[treatment]
        count = f"{here_NL.sum():,} of {here_NL.size:,} cells ({here_NL.mean():.1%})"
        notes.append(f"{what}: {count} are {meaning}: {done}")
        left_out |= set(row_N.tolist()) if treatment == "leave_out" else set()
        unsure_NL |= here_NL & (treatment == "ignore")
    if label.threshold is not None:
        notes.append(f"{what}: shares from {label.threshold:g} on are labels")
    return Labels(
        "multi_label",
        _names_of(state_NL == 1, names),
        tuple(names),
        tuple(notes),
        _names_of(unsure_NL, names) if unsure_NL.any() else None,
        frozenset(left_out),
    )


def _names_of(has_NL: np.ndarray[Any, Any], names: Sequence[str]) -> list[tuple[str, ...]]:
    patterns, number_N = np.unique(has_NL, axis=0, return_inverse=True)
    labels = [tuple(names[i] for i in np.flatnonzero(row).tolist()) for row in patterns]
    return [labels[number] for number in number_N.ravel().tolist()]


def _states(
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
            share = number is not None and 0 < number < 1
            problem = "a share: say from which on it is a label" if share else "neither 0 nor 1"
            allowed = "threshold 0.5, or another" if share else ["1", "0", "true", "false", "blank", "-1"]
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


def _texts_of(rows: TableRows, column: str) -> list[str]:
    """Converts a column's values to texts. Raises UserError for a value that is no text or number."""
    texts = []
    for row, value in enumerate(rows.frame[column]):
        try:
            texts.append(text_of(value))
        except ValueError as error:
            raise rows.error(row, str(error), column) from None
    return texts


def _ratings(rows: TableRows, label: AspectColumns) -> Ratings:
    """Reads the ratings of every row. Raises UserError for a value that is not on the scale."""
    aspects = tuple(label.wanted(rows.tables[0].columns).values())
    found = []
    for column in aspects:
        texts = _texts_of(rows, column)
        values = {text: 0.0 if text in MISSING else number_of(text) for text in dict.fromkeys(texts)}
        for text, value in values.items():
            if value is None or (value != 0 and value not in label.scale):
                allowed = [f"{step:g}" for step in label.scale]
                raise rows.error(texts.index(text), "not a rating", column, text, allowed)
        found.append([values[text] for text in texts])
    return Ratings(aspects, label.scale, [list(row) for row in zip(*found, strict=True)])


def _levels_of(rows: TableRows, name: str, label: PathColumn) -> dict[str, Labels]:
    """Splits a column of paths, of which some may end early, into spaces `<name>_level1` and so on."""
    column = CellColumn.of(rows, label.column)
    paths: dict[Cell, list[str]] = {}
    for cell in column.first:
        one = "" if cell == () else alone(cell)
        if one is None or several_paths([one], label.separator):
            raise column.error(cell, "several paths in a row", one or list(cell), "one path")
        if cell and isinstance(cell, tuple) and one in MISSING:
            raise column.error(cell, MISSING_ITEM, list(cell), "one path")
        parts = [] if one in MISSING else [part.strip() for part in one.split(label.separator)]
        while parts and parts[-1] in JOINED_MISSING:
            parts.pop()  # the path ends early
        if not all(parts) or JOINED_MISSING & set(parts):
            raise column.error(cell, "a path with an empty level", one, f"names between '{label.separator}'")
        paths[cell] = parts
    for pair in two_spellings(paths.values()):
        first, second = (next(cell for cell in paths if paths[cell][: len(path)] == path) for path in pair)
        found, more = [path[-1] for path in pair], f" and {rows.place(column.first[first])}"
        raise column.error(second, "a class is spelt in two ways", found, "one of them", more)
    depth = max(map(len, paths.values()))
    if depth == 0:
        raise UserError("no row has a label", file=rows.tables[0].path, key=label.column)
    shorter = sum(0 < len(paths[cell]) < depth for cell in column.of_row)
    notes = [f"{label.column}: {counted(depth, 'level')}, divided at '{label.separator}'", *column.notes]
    if shorter:
        notes.append(f"{label.column}: {counted(shorter, 'row')} have a path of fewer than {depth} levels")
    names = [[tuple(paths[cell][at : at + 1]) for cell in column.of_row] for at in range(depth)]
    levels = {
        f"{name}_level{at + 1}": Labels("single", its, None, tuple(notes)) for at, its in enumerate(names)
    }
    return _tell_apart(levels, rows)


def _tell_apart(levels: Mapping[str, Labels], rows: TableRows) -> dict[str, Labels]:
    """Renames classes below several parents to whole paths; rows without the coarser class lose the finer."""
    found = dict(levels)
    for coarse, fine in pairwise(levels):
        above: dict[str, Counter[str]] = defaultdict(Counter)
        pairs = list(zip(found[coarse].names, found[fine].names, strict=True))
        for parent, its in pairs:
            if parent and its:
                above[its[0]][parent[0]] += 1
        twice = {name: parents for name, parents in above.items() if len(parents) > 1}
        if not twice:
            continue
        first, parents = next(iter(twice.items()))
        if found[fine].classes is not None:
            row = next(row for row, (_, its) in enumerate(pairs) if its == (first,))
            problem = f"a class of {fine} has two parents in {coarse}"
            raise rows.error(row, problem, fine, [first, *parents], "one, or no given classes")
        renamed = [
            ((f"{parent[0]}/{its[0]}",) if parent else ()) if its and its[0] in twice else its
            for parent, its in pairs
        ]
        lost = sum(bool(its) and not new for (_, its), new in zip(pairs, renamed, strict=True))
        below = ", ".join(f"{parent} ({count})" for parent, count in parents.most_common(3))
        note = f"{fine}: {counted(len(twice), 'name')} below several classes of {coarse} are told apart by "
        note += f"their path, such as {first} below {below}"
        if lost:
            note += f"; {counted(lost, 'row')} with such a name have no class of {coarse} and get none"
        found[fine] = replace(found[fine], names=renamed, notes=(*found[fine].notes, note))
    return found
