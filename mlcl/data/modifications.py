"""Changes that a job makes to a data set: a part of its rows, classes that are held out, label noise.

Shapes: N rows, L labels, A aspects, C classes, E stored entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlcl.data.columns import as_rows, parent_rows, rating_classes, rows_of_entries
from mlcl.data.dataset import Dataset
from mlcl.data.format import DatasetInfo, HeldOut, LabelSpace
from mlcl.data.hierarchies import class_parents
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows

Indices = NDArray[np.int64]
KEY = "data.hold_out"
SHOTS = 5
"""The least training rows of a held-out class; few-shot evaluation learns a class from this many rows."""


def subset(
    split: Split, labels: str, per_class: int | None = None, n: int | None = None, seed: int = 0
) -> Split:
    """Chooses rows of a split, in the split's order; with equal seeds, a larger part contains a smaller one.

    In an aspects space each pair of aspect and rating counts as a class, in a hierarchy each class of its
    finest level.

    Args:
        split: The rows to choose from.
        labels: The label space whose classes are counted.
        per_class: The least number of rows of every class. Round r of `per_class` goes through the labels
            from the rarest on, and adds rows until the label has r. If a class has fewer rows, all are
            chosen; `short_classes` names such classes.
        n: The number of rows in all, with the classes in proportion; a row with several labels counts for its
            rarest label. Rows without a label are chosen only with `n`.
        seed: Seed of the draw.

    Raises:
        UserError: If `n` exceeds the number of rows, if the label space is unknown, and if both or none of
            `per_class` and `n` are given.
    """
    if (per_class is None) == (n is None):
        raise UserError(
            "give exactly one of per_class and n", key="data.subset", found={"per_class": per_class, "n": n}
        )
    rows = label_sets(split, labels)
    rank_N = np.random.default_rng([seed, 0x5B5]).permutation(len(split)).astype(np.int64)
    if n is not None:
        if n > len(split):
            raise UserError(
                "more rows than there are", key="data.subset.n", found=n, allowed=f"1 to {len(split)}"
            )
        indices = _order_in_proportion(rows, rank_N)[:n]
    else:
        assert per_class is not None
        indices = _choose_in_rounds(rows, rank_N, per_class)
    return split.take(torch.from_numpy(np.sort(indices)))


def label_sets(split: Split, name: str) -> LabelRows:
    """Returns the labels of a space as sparse rows.

    A single space has one label a row, aspects have a label for each pair of aspect and rating, and a
    hierarchy has the labels of its finest level.
    """
    space = split.info.space(name)
    if space.kind == "hierarchy":
        name = f"{name}.{space.levels[-1]}"
    labels = split.labels(name)
    if space.kind != "aspects":
        return as_rows(labels, space)
    assert isinstance(labels, Tensor)
    class_NA, scale = rating_classes(labels, space.scale), len(space.scale)
    row_E, aspect_E = (class_NA >= 0).nonzero(as_tuple=True)
    label_E = scale * aspect_E + class_NA[row_E, aspect_E]
    return rows_of_entries(row_E.numpy(), label_E.numpy(), len(labels), scale * len(space.aspects))


def _order_in_proportion(rows: LabelRows, rank_N: Indices) -> Indices:
    """Orders all rows so that, for every n, the rarest labels of the first n rows are in proportion."""
    stratum_N = _rarest_labels(rows)
    order = np.lexsort((rank_N, stratum_N))
    ordered_N = stratum_N[order]
    first_N = np.searchsorted(ordered_N, ordered_N)
    sizes_N = np.searchsorted(ordered_N, ordered_N, side="right") - first_N
    key = (np.arange(len(order)) - first_N + 0.5) / sizes_N
    result: Indices = order[np.lexsort((rank_N[order], key))]
    return result


def _rarest_labels(rows: LabelRows) -> Indices:
    """Returns the rarest label (N,) of each row; -1 for a row without a label."""
    columns, counts = rows.columns.numpy(), rows.counts().numpy()
    rarity_E = np.bincount(columns, minlength=rows.width)[columns]
    row_E = np.repeat(np.arange(len(rows)), counts)
    order = np.lexsort((columns, rarity_E, row_E))
    first_N = rows.offsets[:-1].numpy()
    stratum_N = np.full(len(rows), -1, dtype=np.int64)
    stratum_N[counts > 0] = columns[order][first_N[counts > 0]]
    return stratum_N


def _choose_in_rounds(rows: LabelRows, rank_N: Indices, per_class: int) -> Indices:
    """Chooses rows in the order of `rank_N`: in round r, rows until each label has r of them.

    A larger `per_class` only adds rows to the result.
    """
    columns, row_E = rows.columns.numpy(), rows.row_index().numpy()
    order = np.lexsort((rank_N[row_E], columns))
    totals = np.bincount(columns, minlength=rows.width)
    queues = np.split(row_E[order], np.cumsum(totals)[:-1])
    row_labels, counts = rows.lists(), np.zeros(rows.width, dtype=np.int64)
    is_chosen, positions = np.zeros(len(rows), dtype=bool), np.zeros(rows.width, dtype=np.int64)
    for target_count in range(1, per_class + 1):
        for label in np.argsort(totals, kind="stable"):
            queue = queues[label]
            while counts[label] < target_count and positions[label] < len(queue):
                row = queue[positions[label]]
                positions[label] += 1
                if not is_chosen[row]:
                    is_chosen[row] = True
                    counts[row_labels[row]] += 1
    return np.flatnonzero(is_chosen)


def short_classes(split: Split, labels: str, per_class: int) -> list[str]:
    """Returns a text for each class, or rating of an aspect, that has fewer than `per_class` rows."""
    space, rows = split.info.space(labels), label_sets(split, labels)
    ratings = (f"{aspect} {rating:g}" for aspect in space.aspects for rating in space.scale)
    names = ratings if space.kind == "aspects" else space.classes
    totals = torch.bincount(rows.columns, minlength=rows.width).tolist()
    pairs = zip(names, totals, strict=True)
    return [f"class {name} has {total} of {per_class} rows" for name, total in pairs if total < per_class]


def hold_out(data: Dataset, labels: str, share: float, seed: int, stored: Dataset | None = None) -> Dataset:
    """Draws classes to hold out: `Dataset.split` omits rows with such a class, `Dataset.unseen` returns them.

    Args:
        data: The data set.
        labels: The label space. In a hierarchy the held-out classes are drawn from the finest level.
        share: The fraction of the classes with at least `SHOTS` training rows that is held out, rounded. In a
            hierarchy it applies to the classes below each parent, and each parent keeps at least one.
        seed: Seed of the draw.
        stored: The data set before its validation rows were redrawn, whose training rows are counted, so that
            the classes, and with them the test rows, are the same for all draws; default: `data`.

    Raises:
        UserError: For an unknown label space, for aspects, if fewer than two classes would be held out, and
            if fewer than two classes, or no rows of train or validation, would stay.
    """
    name = _finest_level(data, labels)
    rows = as_rows((stored or data).split("train").labels(name), data.info.space(name))
    count_C, group_C = np.bincount(rows.columns, minlength=rows.width), _parent_classes(data, labels, name)
    rng = np.random.default_rng([seed, 0x40D])
    classes: list[int] = []
    for group in np.unique(group_C):
        members = rng.permutation(np.flatnonzero((group_C == group) & (count_C >= SHOTS)))
        limit = len(members) - 1 if name != labels else len(members)
        classes += members[: max(0, min(int(share * len(members) + 0.5), limit))].tolist()
    rest = int((count_C > 0).sum()) - len(classes)
    if len(classes) < 2 or rest < 2:
        raise UserError(
            f"{len(classes)} classes of {labels} would be held out and {rest} stay: two each are needed, of "
            f"{int((count_C >= SHOTS).sum())} with {SHOTS} training rows",
            key=f"{KEY}.share",
            found=share,
        )
    part = data.without(HeldOut(name, tuple(sorted(classes))))
    for split in ("train", "validation"):
        part.split(split)
    return part


def _finest_level(data: Dataset, labels: str) -> str:
    """Returns `labels`, or a hierarchy's finest level. Raises UserError for aspects and unknown names."""
    try:
        space = data.info.space(labels)
    except UserError as error:
        raise error.with_fields(key=f"{KEY}.labels") from None
    if space.kind == "aspects":
        allowed = [name for name, other in data.info.label_spaces.items() if other.kind != "aspects"]
        raise UserError(
            "aspects have no classes", key=f"{KEY}.labels", found=f"{labels} (aspects)", allowed=allowed
        )
    return space.levels[-1] if space.kind == "hierarchy" else labels


def _parent_classes(data: Dataset, labels: str, name: str) -> Indices:
    """Returns the parent (C,) of each class in the hierarchy `labels`, -1 unknown; zeros in other spaces."""
    hierarchy = None if name == labels else data.info.label_spaces[labels]
    if hierarchy is None or len(hierarchy.levels) < 2:
        return np.zeros(data.info.space(name).n_classes, dtype=np.int64)
    if hierarchy.parents:
        return np.asarray(hierarchy.parents[-1], dtype=np.int64)
    return class_parents(data, name)[hierarchy.levels[-2]].numpy()


def reached_by(info: DatasetInfo, name: str) -> set[str]:
    """Returns the names of the label spaces, aspects and levels that noise on the label space `name` changes.

    These are `name` itself, its aspects, and the hierarchies that have it as their finest level, with their
    coarser levels. Raises UserError for an unknown name, a hierarchy, an aspect and a coarser level.
    """
    space, name = info.space(name), info.own_name(name)
    coarse_levels = {level for other in info.label_spaces.values() for level in other.levels[:-1]}
    if name not in info.label_spaces or space.kind == "hierarchy" or name in coarse_levels:
        flat_spaces = {path for path, other in info.label_spaces.items() if other.kind != "hierarchy"}
        raise UserError(
            "noise goes to a whole label space; of a hierarchy to the finest level",
            key="data.label_noise.labels",
            found=name,
            allowed=sorted(flat_spaces - coarse_levels),
        )
    names = {name, *(f"{name}.{aspect}" for aspect in space.aspects)}
    for path, hierarchy in info.label_spaces.items():
        if name in hierarchy.levels:
            names |= {path, *hierarchy.levels, *(f"{path}.{level}" for level in hierarchy.levels)}
    return names


def add_label_noise(part: Split, name: str, rate: float, seed: int, data: Dataset | None = None) -> Split:
    """Replaces each label, with probability `rate`, by a class drawn uniformly from all C classes.

    So a label stays what it is with probability 1 - rate (C - 1) / C, and `rate` 1 makes it independent of
    the row. Missing labels stay missing; aspects are drawn independently. In a multi-label row each label is
    replaced on its own, so that the number of labels stays unless two become equal: this is our extension,
    as the paper has no multi-label data. A label drawn at an unknown entry is left out: the entry stays
    unknown. Where a row's class changes, its coarser levels become the parents of the drawn class. The noise
    of a row depends only on the seed and the whole split, so that every subset has the same noise. Parents
    are read from `data`, the data set of the split, which may be omitted unless validation was redrawn.
    Source: MLCL, supplement 8.1. Raises UserError for the names that `reached_by` refuses.
    """
    reached_by(part.info, name)
    name = part.info.own_name(name)
    space, labels = part.info.space(name), part.whole.labels(name)
    rng = np.random.default_rng([seed, 0x401])
    if isinstance(labels, LabelRows):
        rows = _add_row_noise(labels, rate, rng)
        hierarchies = [hierarchy for hierarchy in part.info.label_spaces.values() if name in hierarchy.levels]
        coarser_labels = {
            level: level_rows
            for hierarchy in hierarchies
            for level, level_rows in _coarser_levels(part, hierarchy, rows)
        }
        return replace(part, changed={**part.changed, name: rows, **coarser_labels})
    noisy_labels = _add_noise(labels, space, rate, rng)
    changed: dict[str, Tensor | LabelRows] = {**part.changed, name: noisy_labels}
    for level, parent_C in class_parents(data or Dataset(part.whole.reader), name).items():
        level_labels = part.whole.labels(level)
        assert isinstance(level_labels, Tensor)
        changed[level] = torch.where(noisy_labels == labels, level_labels, parent_C[noisy_labels])
    return replace(part, changed=changed)


def _add_noise(labels: Tensor, space: LabelSpace, rate: float, rng: np.random.Generator) -> Tensor:
    """Replaces some of the classes (N,) or ratings (N, A) by random ones, each with probability `rate`."""
    values = torch.tensor(space.scale or range(space.n_classes), dtype=labels.dtype)
    is_hit = torch.from_numpy(rng.random(labels.shape) < rate)
    noise = values[torch.from_numpy(rng.integers(len(values), size=labels.shape))]
    missing_value = 0 if space.kind == "aspects" else -1
    return torch.where(is_hit & (labels != missing_value), noise, labels)


def _add_row_noise(labels: LabelRows, rate: float, rng: np.random.Generator) -> LabelRows:
    """Replaces some entries of label rows by random labels; a label that a row then has twice counts once."""
    is_hit_E = rng.random(len(labels.columns)) < rate
    noise_E = rng.integers(labels.width, size=len(labels.columns))
    row_E, column_E = labels.row_index().numpy(), np.where(is_hit_E, noise_E, labels.columns.numpy())
    if labels.unknown is not None:
        is_known_E = ~np.isin(row_E * labels.width + column_E, labels.unknown.cells().numpy())
        row_E, column_E = row_E[is_known_E], column_E[is_known_E]
    return replace(rows_of_entries(row_E, column_E, len(labels), labels.width), unknown=labels.unknown)


def _coarser_levels(part: Split, hierarchy: LabelSpace, rows: LabelRows) -> Iterator[tuple[str, LabelRows]]:
    """Yields the coarser levels of a hierarchy, fine to coarse, for the finest labels `rows`.

    A level has the parents of the new labels of the next finer level. Since paths may end early, a row also
    keeps its stored labels at a level that are no parents of its stored finer labels.
    """
    fine = part.whole.labels(hierarchy.levels[-1])
    for level, parents in zip(reversed(hierarchy.levels[:-1]), reversed(hierarchy.parents), strict=True):
        coarse, width = part.whole.labels(level), part.info.space(level).n_classes
        assert isinstance(coarse, LabelRows)
        assert isinstance(fine, LabelRows)
        ends = np.setdiff1d(coarse.cells().numpy(), parent_rows(fine, parents, width).cells().numpy())
        cells = np.union1d(parent_rows(rows, parents, width).cells().numpy(), ends)
        rows = rows_of_entries(cells // width, cells % width, len(rows), width)
        fine = coarse
        yield level, rows
