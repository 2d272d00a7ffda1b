"""Levels of a table: paths in one column, names that occur below two parents, parents of several labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mlcl.data.format import LabelSpace
from mlcl.data.hierarchies import (
    hierarchy_of,
    pairs_in_rows,
    pairs_of_paths,
    paths_in_file,
)
from mlcl.data.tables.label_columns import Column, Labels
from mlcl.data.tables.notation import MISSING, alone
from mlcl.data.tables.options import HierarchyOf, PathColumn
from mlcl.data.tables.rows import Rows
from mlcl.markup import counted


def levels_of(rows: Rows, name: str, label: PathColumn) -> dict[str, Labels]:
    """The levels of a column of paths, coarse first, as `<name>_level1` and so on.

    A path may end above the finest level; the row then has no class below. Raises UserError for a path with
    an empty part.
    """
    column = Column.of(rows, label.column)
    paths: dict[object, list[str]] = {}
    for cell in column.first:
        one = "" if cell == () else alone(cell)
        if one is None:
            raise column.error(cell, "several paths in a row", list(cell), "one path")
        parts = [] if one in MISSING else [part.strip() for part in one.split(label.separator)]
        if not all(parts):
            raise column.error(cell, "a path with an empty level", one, f"names between '{label.separator}'")
        paths[cell] = parts
    depth = max(map(len, paths.values()))
    shorter = sum(0 < len(paths[cell]) < depth for cell in column.of_row)
    notes = [f"{label.column}: {counted(depth, 'level')}, divided at '{label.separator}'", *column.notes]
    if shorter:
        notes.append(f"{label.column}: {counted(shorter, 'row')} have a path of fewer than {depth} levels")
    levels = {
        f"{name}_level{at + 1}": Labels(
            "single", [tuple(paths[cell][at : at + 1]) for cell in column.of_row], None, tuple(notes)
        )
        for at in range(depth)
    }
    return tell_apart(levels, rows)


def tell_apart(levels: Mapping[str, Labels], rows: Rows) -> dict[str, Labels]:
    """The levels, coarse first, with names that occur below two parents replaced by whole paths.

    A row with such a name and without its parent has no class at that level. Raises UserError for such a name
    among given classes.
    """
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
        note = (
            f"{fine}: {counted(len(twice), 'name')} below several classes of {coarse} are told apart by "
            f"their path, such as {first} below {below}"
        )
        more = (
            f"; {counted(lost, 'row')} with such a name have no class of {coarse} and get none"
            if lost
            else ""
        )
        found[fine] = replace(found[fine], names=renamed, notes=(*found[fine].notes, note + more))
    return found


def multi_label_hierarchy(
    label: HierarchyOf, labels: Mapping[str, Labels], spaces: Mapping[str, LabelSpace], file: Path, key: str
) -> LabelSpace:
    """The hierarchy through multi-label levels, with parents from its file or as the rows tell them."""
    if label.parents is not None:
        pairs = pairs_of_paths(paths_in_file(label.parents, label.levels, spaces[label.levels[-1]].classes))
    else:
        rows = {level: labels[level].indices(spaces[level]) for level in label.levels}
        pairs = [
            pairs_in_rows(rows[fine], rows[coarse], spaces[fine], spaces[coarse])
            for coarse, fine in pairwise(label.levels)
        ]
    return hierarchy_of(pairs, label.levels, spaces, file, key)
