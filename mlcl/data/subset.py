"""A stratified, seeded part of a split; the larger part of one seed contains the smaller.

Shapes: N rows, L labels, E stored entries.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.data.columns import rating_classes
from mlcl.data.format import LabelSpace
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows

Indices = NDArray[np.int64]


def subset(
    split: Split, labels: str, per_class: int | None = None, n: int | None = None, seed: int = 0
) -> Split:
    """`per_class` rows of every class, or `n` rows with classes in proportion, in the split's order.

    Multi-label rows: `per_class` goes round the labels from the rarest, each round adding a row to every
    label that still lacks one; `n` counts a row to its rarest label. Aspects count as one label for each
    aspect's rating, a hierarchy as its finest level. Rows without a label are drawn by `n` alone. A class
    with fewer than `per_class` rows gives what it has, and `warnings` names it. Raises UserError when `n`
    exceeds the rows and for an unknown label space.
    """
    if (per_class is None) == (n is None):
        raise UserError(
            "give exactly one of per_class and n", key="data.subset", found={"per_class": per_class, "n": n}
        )
    rows, names = label_sets(split, labels)
    rank_N = np.random.default_rng([seed, 0x5B5]).permutation(len(split)).astype(np.int64)
    warnings: tuple[str, ...] = ()
    if n is not None:
        if n > len(split):
            raise UserError(
                "more rows than there are", key="data.subset.n", found=n, allowed=f"1 to {len(split)}"
            )
        chosen = _in_proportion(rows, rank_N)[:n]
    else:
        assert per_class is not None
        chosen = _rounds(rows, rank_N, per_class)
        warnings = _short_classes(rows, names, per_class)
    part = split.take(torch.from_numpy(np.sort(chosen)))
    return replace(part, warnings=(*split.warnings, *warnings))


def label_sets(split: Split, name: str) -> tuple[LabelRows, list[str]]:
    """The labels of a space as sets, and the name of each label.

    A class is a set of one label; aspects are a label for each aspect's rating, a hierarchy its finest level.
    """
    space = split.info.space(name)
    if space.kind == "hierarchy":
        name = f"{name}.{space.levels[-1]}"
    labels = split.labels(name)
    if isinstance(labels, LabelRows):
        return labels, list(space.classes)
    if space.kind == "aspects":
        return _aspect_rows(labels, space), [f"{a} {r:g}" for a in space.aspects for r in space.scale]
    return LabelRows.from_classes(labels, space.n_classes), list(space.classes)


def _aspect_rows(rating_NA: torch.Tensor, space: LabelSpace) -> LabelRows:
    size = len(space.scale)
    class_NA = rating_classes(rating_NA, space.scale)
    label_NA = class_NA + size * torch.arange(len(space.aspects))
    known_NA = class_NA >= 0
    counts = known_NA.sum(dim=1)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return LabelRows(offsets, label_NA[known_NA], size * len(space.aspects))


def _in_proportion(rows: LabelRows, rank_N: Indices) -> Indices:
    """All rows, ordered such that every beginning holds the strata in proportion."""
    stratum_N = _rarest(rows)
    order = np.lexsort((rank_N, stratum_N))
    sizes = np.bincount(stratum_N + 1, minlength=rows.width + 1)[stratum_N[order] + 1]
    starts = np.maximum.accumulate(
        np.where(np.diff(stratum_N[order], prepend=-2) != 0, np.arange(len(order)), 0)
    )
    key = (np.arange(len(order)) - starts + 0.5) / sizes
    result: Indices = order[np.lexsort((rank_N[order], key))]
    return result


def _rarest(rows: LabelRows) -> Indices:
    """The rarest label (N,) of each row; -1 for none."""
    columns, counts = rows.columns.numpy(), rows.counts().numpy()
    rarity_E = np.bincount(columns, minlength=rows.width)[columns]
    row_E = np.repeat(np.arange(len(rows)), counts)
    order = np.lexsort((columns, rarity_E, row_E))
    first_N = rows.offsets[:-1].numpy()
    stratum_N = np.full(len(rows), -1, dtype=np.int64)
    stratum_N[counts > 0] = columns[order][first_N[counts > 0]]
    return stratum_N


def _rounds(rows: LabelRows, rank_N: Indices, per_class: int) -> Indices:
    """Rows of `per_class` rounds; the rounds of a larger number begin with those of a smaller."""
    columns, row_E = rows.columns.numpy(), rows.row_index().numpy()
    order = np.lexsort((rank_N[row_E], columns))
    totals = np.bincount(columns, minlength=rows.width)
    queues = np.split(row_E[order], np.cumsum(totals)[:-1])
    lists, have = rows.lists(), np.zeros(rows.width, dtype=np.int64)
    taken, at = np.zeros(len(rows), dtype=bool), np.zeros(rows.width, dtype=np.int64)
    for wanted in range(1, per_class + 1):
        for label in np.argsort(totals, kind="stable"):
            queue = queues[label]
            while have[label] < wanted and at[label] < len(queue):
                row = queue[at[label]]
                at[label] += 1
                if not taken[row]:
                    taken[row] = True
                    have[lists[row]] += 1
    return np.flatnonzero(taken)


def _short_classes(rows: LabelRows, names: list[str], per_class: int) -> tuple[str, ...]:
    totals = torch.bincount(rows.columns, minlength=rows.width).tolist()
    return tuple(
        f"class {name} has {total} of {per_class} rows"
        for name, total in zip(names, totals, strict=True)
        if total < per_class
    )
