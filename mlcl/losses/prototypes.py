"""One learned prototype a label, a further candidate of every anchor, for losses that may have them.

Shapes: B rows, D embedding, L labels.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from mlcl.losses.batch import Batch
from mlcl.losses.labels import RuleLabels, known_classes
from mlcl.losses.sets import LabelSets
from mlcl.losses.spec import LossSpec
from mlcl.unit_rows import unit_rows


def new_prototypes(spec: LossSpec, shape: tuple[int, int] | None) -> nn.Parameter | None:
    """Random unit rows (L, D), None for None. Raises ValueError for a loss that has none and a bad shape."""
    if shape is None:
        return None
    if not spec.prototypes:
        raise ValueError(f"{spec.name} has no prototypes; found: {shape}; allowed: None")
    if len(shape) != 2 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(f"prototypes must be (labels, dimension); found: {shape}")
    return nn.Parameter(unit_rows(torch.randn(shape)))


def check_dimension(prototype_LD: Tensor, z_BD: Tensor) -> None:
    """Raises ValueError where embeddings and prototypes differ in D."""
    found = prototype_LD.shape[1]
    if found != z_BD.shape[1]:
        raise ValueError(f"embeddings {tuple(z_BD.shape)} do not fit prototypes of dimension {found}")


def by_prototype(batch: Batch, prototype_LD: Tensor) -> Batch:
    """The batch with class labels as columns by class, so that each class keeps its prototype."""
    if isinstance(batch.labels, Tensor) and batch.labels.ndim == 1:
        return replace(batch, labels=known_classes(batch.labels, len(prototype_LD)))
    return batch


def check_width(name: str, labels: RuleLabels, prototype_LD: Tensor) -> None:
    """Raises ValueError where there is not one prototype a label."""
    if isinstance(labels, LabelSets) and labels.rows is not None and labels.rows.width != len(prototype_LD):
        raise ValueError(
            f"{name} has prototypes of {len(prototype_LD)} labels; found: labels of width {labels.rows.width}"
        )
