"""Checks the labels that callers give, and converts them to the form that a rule reads.

Shapes: B rows, L labels, A aspects, H levels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.sets import LabelSets, first_rows
from mlcl.losses.spec import LabelKind

MOST_LEVELS = 127
"""The most levels of a path: depths are stored in 8 bits."""
Labels = Tensor | LabelRows
RuleLabels = Tensor | LabelSets
"""The form that rules read: classes or sample ids (B,), paths (B, H), or sets of labels or of nodes."""


def check_shapes(
    name: str, kind: LabelKind, embeddings: Tensor, labels: Labels | None, sample_ids: Tensor | None
) -> None:
    """Checks dtypes and shapes of a loss's inputs.

    Raises ValueError for an input that is missing or of the wrong kind and for different numbers of rows, and
    TypeError for a sparse tensor, or embeddings or sample_ids that are no tensor.
    """
    if not isinstance(embeddings, Tensor) or embeddings.layout is not torch.strided:
        layout = getattr(embeddings, "layout", type(embeddings).__name__)
        raise TypeError(f"embeddings must be a dense tensor (B, D); found: {layout}")
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(f"embeddings must be floating (B, D); found: {_describe_shape(embeddings)}")
    if sample_ids is not None:
        if not isinstance(sample_ids, Tensor) or sample_ids.layout is not torch.strided:
            layout = getattr(sample_ids, "layout", type(sample_ids).__name__)
            raise TypeError(f"sample_ids must be a dense tensor (B,); found: {layout}")
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
        if kind == "class" or (kind == "path" and not labels.levels):
            shapes = "(B,)" if kind == "class" else "(B, H) or LabelRows with levels"
            raise ValueError(f"{name} needs {kind} labels {shapes}; found: {_describe_shape(labels)}")
        _check_levels(len(labels.levels))
        return
    if not isinstance(labels, Tensor):
        forms = "a tensor" if kind == "class" else "a tensor or LabelRows"
        raise ValueError(f"{name} needs {kind} labels as {forms}; found: {type(labels).__name__}")
    if labels.layout != torch.strided:
        raise TypeError(
            f"{name} takes no sparse tensor as labels; found: {labels.layout}; allowed: a dense tensor "
            "(labels.to_dense()) or mlcl.labels.LabelRows (LabelRows.from_dense(labels.to_dense()))"
        )
    if kind == "class" or (kind == "multi_label" and labels.ndim == 1):
        _check_integers("class labels", labels)
    elif kind == "path":
        _check_integers("paths", labels, 2)
        _check_levels(labels.shape[1])
    elif labels.ndim != 2:
        shapes = "(B,), (B, L)" if kind == "multi_label" else "(B, A)"
        raise ValueError(
            f"{name} needs {kind} labels {shapes} or LabelRows; found: {_describe_shape(labels)}"
        )


def _check_levels(levels: int) -> None:
    if levels > MOST_LEVELS:
        raise ValueError(f"paths have at most {MOST_LEVELS} levels; found: {levels}")


def _check_integers(name: str, values: Tensor, dims: int = 1) -> None:
    integer = not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)
    if values.ndim != dims or not integer or (dims == 2 and values.shape[1] == 0):
        raise ValueError(
            f"{name} must be integers {'(B,)' if dims == 1 else '(B, H)'}; found: {_describe_shape(values)}"
        )


def _check_rows(name: str, values: Labels, embeddings: Tensor) -> None:
    if len(values) != len(embeddings):
        raise ValueError(
            f"{name} {_describe_shape(values)} do not fit embeddings {_describe_shape(embeddings)}"
        )


def _describe_shape(values: Labels) -> str:
    if isinstance(values, LabelRows):
        return f"LabelRows ({len(values)}, {values.width})"
    return f"{tuple(values.shape)} {values.dtype}"


def to_rule(kind: LabelKind, labels: Labels) -> RuleLabels:
    """Converts labels to the form in which rules read labels of this kind.

    Raises ValueError for values that this kind does not allow.
    """
    if isinstance(labels, LabelRows):
        return LabelSets.of_rows(labels)
    if kind in ("class", "path"):
        return _check_numbers(labels, "paths" if kind == "path" else "class labels")
    if kind == "ratings":
        return LabelSets.of_ratings(_check_ratings(labels))
    return LabelSets.of_rows(_class_rows(labels) if labels.ndim == 1 else _multi_hot_rows(labels))


def _check_numbers(number: Tensor, name: str = "class labels") -> Tensor:
    number = number.long()
    if bool((number < -1).any()):
        raise ValueError(f"{name} must be -1 (missing) or more; found: {int(number.min())}")
    return number


def classes_as_rows(class_B: Tensor, width: int) -> LabelRows:
    """Converts classes below `width` to one-hot rows, -1 to an empty row; raises ValueError for others."""
    class_B = _check_numbers(class_B)
    if bool((class_B >= width).any()):
        raise ValueError(f"class labels must be below {width}; found: {int(class_B.max())}")
    return LabelRows.from_classes(class_B, width)


def _class_rows(class_B: Tensor) -> LabelRows:
    """Converts classes to label rows with a column for each class that occurs, however large its index."""
    class_B = _check_numbers(class_B)
    known_B = class_B >= 0
    class_L, index = torch.unique(class_B[known_B], return_inverse=True)
    number_B = class_B.new_full((len(class_B),), -1).masked_scatter_(known_B, index)
    return LabelRows.from_classes(number_B, len(class_L))


def _multi_hot_rows(y_BL: Tensor) -> LabelRows:
    if bool(((y_BL != 0) & (y_BL != 1)).any()):
        raise ValueError("multi-hot labels must be 0 or 1; found other values")
    return LabelRows.from_dense(y_BL)


def _check_ratings(rating_BA: Tensor) -> Tensor:
    rating_BA = rating_BA.double()
    if not bool(((rating_BA >= 0) & rating_BA.isfinite()).all()):
        raise ValueError("ratings must be finite and 0 (missing) or more; found other values")
    return rating_BA


def check_width(name: str, labels: RuleLabels, prototypes: int) -> None:
    """Raises ValueError if the number of prototypes differs from the number of labels."""
    if isinstance(labels, LabelSets) and labels.rows is not None and labels.rows.width != prototypes:
        raise ValueError(
            f"{name} has prototypes of {prototypes} labels; found: labels of width {labels.rows.width}"
        )


def check_views(labels: RuleLabels, sample_B: Tensor) -> None:
    """Raises ValueError if two rows of one sample differ in their labels."""
    sample_index_B = torch.unique(sample_B, return_inverse=True)[1]
    first_B = first_rows(sample_index_B)[sample_index_B]
    if isinstance(labels, LabelSets):
        same_B = labels.equal_to(first_B)
    else:
        same_B = (labels == labels[first_B]).view(len(labels), labels[0].numel() if len(labels) else 1).all(1)
    if not bool(same_B.all()):
        row = int((~same_B).nonzero()[0])
        raise ValueError(f"rows of sample {int(sample_B[row])} have different labels (row {row} among them)")
