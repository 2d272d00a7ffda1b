"""Labels as callers give them, to the one dense form that a rule reads; with every check of them.

Shapes: B rows, L labels, A aspects.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.spec import LabelKind

Labels = Tensor | LabelRows


def check_shapes(
    name: str, kind: LabelKind, embeddings: Tensor, labels: Labels | None, sample_ids: Tensor | None
) -> None:
    """Raises ValueError, with both shapes, for inputs of the wrong kind or that do not belong together."""
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(f"embeddings must be floating (B, D); found: {_shape(embeddings)}")
    if sample_ids is not None:
        _check_integers("sample_ids", sample_ids)
        _check_rows("sample_ids", sample_ids, embeddings)
    if kind == "none":
        if sample_ids is None:
            raise ValueError(f"{name} needs sample_ids (B,): the sample of each row; found: None")
        return
    if labels is None:
        raise ValueError(f"{name} needs {kind} labels; found: None")
    _check_kind(name, kind, labels)
    _check_rows("labels", labels, embeddings)


def _check_kind(name: str, kind: LabelKind, labels: Labels) -> None:
    if isinstance(labels, LabelRows):
        if kind == "class":
            raise ValueError(f"{name} needs class labels (B,); found: {_shape(labels)}")
        return
    if not isinstance(labels, Tensor):
        raise ValueError(
            f"{name} needs {kind} labels as a tensor or LabelRows; found: {type(labels).__name__}"
        )
    if kind == "class" or (kind == "multi_label" and labels.ndim == 1):
        _check_integers("class labels", labels)
    elif labels.ndim != 2:
        wanted = "(B,), (B, L)" if kind == "multi_label" else "(B, A)"
        raise ValueError(f"{name} needs {kind} labels {wanted} or LabelRows; found: {_shape(labels)}")


def _check_integers(what: str, values: Tensor) -> None:
    whole = not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)
    if values.ndim != 1 or not whole:
        raise ValueError(f"{what} must be integers (B,); found: {_shape(values)}")


def _check_rows(what: str, values: Labels, embeddings: Tensor) -> None:
    if len(values) != len(embeddings):
        raise ValueError(f"{what} {_shape(values)} do not fit embeddings {_shape(embeddings)}")


def _shape(values: Labels) -> str:
    if isinstance(values, LabelRows):
        return f"LabelRows ({len(values)}, {values.width})"
    return f"{tuple(values.shape)} {values.dtype}"


def to_rule(kind: LabelKind, labels: Labels, dtype: torch.dtype) -> Tensor:
    """The form that rules of this kind read: (B,) classes, (B, L) multi-hot or (B, A) ratings.

    Raises ValueError for values outside of what the kind allows.
    """
    if isinstance(labels, LabelRows):
        return labels.dense(dtype)
    if kind == "class":
        return _classes(labels)
    if kind == "ratings":
        return _ratings(labels)
    return _one_hot(_classes(labels), dtype) if labels.ndim == 1 else _multi_hot(labels, dtype)


def _classes(class_B: Tensor) -> Tensor:
    if bool((class_B < -1).any()):
        raise ValueError(f"class labels must be -1 (missing) or more; found: {int(class_B.min())}")
    return class_B


def _one_hot(class_B: Tensor, dtype: torch.dtype) -> Tensor:
    """One column for each class that occurs, so that the width does not follow the largest index."""
    present_L: Tensor = torch.unique(class_B[class_B >= 0])
    return (class_B[:, None] == present_L).to(dtype)


def _multi_hot(y_BL: Tensor, dtype: torch.dtype) -> Tensor:
    if bool(((y_BL != 0) & (y_BL != 1)).any()):
        raise ValueError("multi-hot labels must be 0 or 1; found other values")
    return y_BL.to(dtype)


def _ratings(rating_BA: Tensor) -> Tensor:
    rating_BA = rating_BA.double()
    if not bool(((rating_BA >= 0) & rating_BA.isfinite()).all()):
        raise ValueError("ratings must be finite and 0 (missing) or more; found other values")
    return rating_BA


def check_views(labels: Tensor, sample_B: Tensor) -> None:
    """Raises ValueError where two rows of one sample differ in their labels."""
    _, sample_index_B = torch.unique(sample_B, return_inverse=True)
    row_B = torch.arange(len(sample_B), device=sample_B.device)
    one_row_B = torch.empty_like(row_B).index_put_((sample_index_B,), row_B)[sample_index_B]
    differs = labels != labels[one_row_B]
    if bool(differs.any()):
        row = int(differs.reshape(len(labels), -1).any(1).nonzero()[0])
        raise ValueError(f"rows of sample {int(sample_B[row])} have different labels (row {row} among them)")
