"""Uniform label noise: some labels of a split drawn anew.

Shapes: N rows of the whole split, A aspects, C classes, E stored entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mlcl.data.class_parents import class_parents
from mlcl.data.columns import parent_rows, rows_of_entries
from mlcl.data.dataset import Dataset
from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.data.split import Split
from mlcl.errors import UserError
from mlcl.labels import LabelRows


def reached_by(info: DatasetInfo, name: str) -> set[str]:
    """The label spaces, with their parts, that noise on `name` changes: its own, and coarser levels.

    Raises UserError for a hierarchy, for a part of a space and for a level that has finer ones.
    """
    space = info.space(name)
    coarse = {level for other in info.label_spaces.values() for level in other.levels[:-1]}
    if name not in info.label_spaces or space.kind == "hierarchy" or name in coarse:
        whole = {other for other, its in info.label_spaces.items() if its.kind != "hierarchy"}
        raise UserError(
            "noise goes to a whole label space; of a hierarchy to the finest level",
            key="data.label_noise.labels",
            found=name,
            allowed=sorted(whole - coarse),
        )
    found = {name, *(f"{name}.{aspect}" for aspect in space.aspects)}
    for path, hierarchy in info.label_spaces.items():
        if name in hierarchy.levels:
            found |= {path, *hierarchy.levels, *(f"{path}.{level}" for level in hierarchy.levels)}
    return found


def add_label_noise(part: Split, name: str, rate: float, seed: int) -> Split:
    """`part` with each label, with probability `rate`, drawn anew and uniformly from all C classes.

    So a label stays what it is with probability 1 - rate (C - 1) / C, and `rate` 1 makes it independent of
    the row. Missing labels stay missing; each aspect is drawn for itself. Of a multi-label row each label is
    replaced, so that it keeps its number of labels, less repeats: the paper has no such data, this is our
    extension. Unknown entries stay unknown: a label that is drawn where a row has one is left out. Where a
    row's class changes, coarser levels of a hierarchy become the parents of the drawn one. The noise of a row
    depends on the seed and the whole split alone: every subset has the same.
    Source: MLCL, supplement 8.1. Raises UserError as `reached_by` does.
    """
    reached_by(part.info, name)
    space, labels = part.info.space(name), part.whole.labels(name)
    rng = np.random.default_rng([seed, 0x401])
    if isinstance(labels, LabelRows):
        rows = _noisy_rows(labels, rate, rng)
        above = [hierarchy for hierarchy in part.info.label_spaces.values() if name in hierarchy.levels]
        coarser = {level: its for hierarchy in above for level, its in _levels_above(part, hierarchy, rows)}
        return replace(part, changed={**part.changed, name: rows, **coarser})
    noisy = _noisy(labels, space, rate, rng)
    changed: dict[str, Tensor | LabelRows] = {**part.changed, name: noisy}
    for level, parent_C in class_parents(Dataset(part.whole.reader), name).items():
        own = part.whole.labels(level)
        assert isinstance(own, Tensor)
        changed[level] = torch.where(noisy == labels, own, parent_C[noisy])
    return replace(part, changed=changed)


def _noisy(labels: Tensor, space: LabelSpace, rate: float, rng: np.random.Generator) -> Tensor:
    """Classes (N,) or ratings (N, A), some of them drawn anew."""
    values = torch.tensor(space.scale or range(space.n_classes), dtype=labels.dtype)
    hit = torch.from_numpy(rng.random(labels.shape) < rate)
    drawn = values[torch.from_numpy(rng.integers(len(values), size=labels.shape))]
    missing = 0 if space.kind == "aspects" else -1
    return torch.where(hit & (labels != missing), drawn, labels)


def _noisy_rows(labels: LabelRows, rate: float, rng: np.random.Generator) -> LabelRows:
    """Label rows with some entries drawn anew; repeats within a row become one."""
    hit_E = rng.random(len(labels.columns)) < rate
    drawn_E = rng.integers(labels.width, size=len(labels.columns))
    row_E, column_E = labels.row_index().numpy(), np.where(hit_E, drawn_E, labels.columns.numpy())
    if labels.unknown is not None:
        known_E = ~np.isin(row_E * labels.width + column_E, labels.unknown.cells().numpy())
        row_E, column_E = row_E[known_E], column_E[known_E]
    return replace(rows_of_entries(row_E, column_E, len(labels), labels.width), unknown=labels.unknown)


def _levels_above(part: Split, hierarchy: LabelSpace, rows: LabelRows) -> Iterator[tuple[str, LabelRows]]:
    """The labels of the coarser levels, given those of the finest."""
    for level, parents in zip(reversed(hierarchy.levels[:-1]), reversed(hierarchy.parents), strict=True):
        rows = parent_rows(rows, parents, part.info.space(level).n_classes)
        yield level, rows
