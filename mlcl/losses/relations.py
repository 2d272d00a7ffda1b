"""The relations R1 to R5 of two label sets, and the similarity and dissimilarity factors.

S is an anchor's label set, T a candidate's; S & T is their intersection. Shapes: N anchors, B candidates, L
labels.
Source: Similarity-Dissimilarity, Eq. 8-12 (relations), Eq. 14-16 (factors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.dense import ratio

Penalty = Literal["inverse", "exponential"]


@dataclass(frozen=True)
class LabelCounts:
    """Sizes of label sets: `shared` |S & T| (N, B), `anchor_size` |S| (N, 1), `candidate_size` |T| (1, B).

    They are floats with whole values. For ratings, `shared` is the sum over aspects of the smaller of the two
    ratings, and the sizes are the sums of each row's ratings.
    """

    shared: Tensor
    anchor_size: Tensor
    candidate_size: Tensor

    @property
    def extra(self) -> Tensor:
        """The number of labels of T that S lacks, |T - S| (N, B), Similarity-Dissimilarity Eq. 16."""
        return self.candidate_size - self.shared

    @property
    def union(self) -> Tensor:
        """The size of the union of S and T (N, B)."""
        return self.anchor_size + self.candidate_size - self.shared

    def reversed(self) -> LabelCounts:
        """Returns the counts of the exchanged pairs: S is the candidate's set, but shapes stay (N, B)."""
        return LabelCounts(self.shared, self.candidate_size, self.anchor_size)


def label_counts(anchors: LabelRows | Tensor, candidates: LabelRows | Tensor | None = None) -> LabelCounts:
    """Counts the labels that anchors share with candidates, in float64.

    Args:
        anchors: Label rows, or a dense multi-hot matrix (N, L).
        candidates: Label rows, or a dense multi-hot matrix (B, L); by default the anchors.

    Raises:
        ValueError: For rows of different widths, and values that are negative or not finite.
        TypeError: For anything but a dense tensor or label rows.

    Example:
        >>> label_counts(torch.tensor([[1, 1, 0]]), torch.tensor([[0, 1, 1], [1, 1, 0]])).shared.tolist()
        [[1.0, 2.0]]
    """
    y_NL = _to_dense(anchors)
    y_BL = y_NL if candidates is None else _to_dense(candidates)
    if y_NL.ndim != 2 or y_BL.ndim != 2 or y_NL.shape[1] != y_BL.shape[1]:
        raise ValueError(
            f"label rows do not fit: anchors {tuple(y_NL.shape)}, candidates {tuple(y_BL.shape)}"
        )
    return LabelCounts(y_NL @ y_BL.T, y_NL.sum(1)[:, None], y_BL.sum(1)[None, :])


def _to_dense(labels: LabelRows | Tensor) -> Tensor:
    if isinstance(labels, LabelRows):
        return labels.dense(torch.float64)
    if not isinstance(labels, Tensor) or labels.is_complex():
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise TypeError(f"labels must be a tensor (N, L) or LabelRows; found: {kind}")
    if labels.layout != torch.strided:
        raise TypeError(
            f"labels are sparse; found: {labels.layout}; allowed: labels.to_dense(), or LabelRows"
        )
    if not ((labels >= 0) & labels.isfinite()).all():
        raise ValueError("labels must be finite and 0 or more; found other values")
    return labels.to(torch.float64)


def relation(counts: LabelCounts) -> Tensor:
    """Returns the number of the relation of every pair, 1 to 5, as int64 (N, B).

    R1: no label is shared. R2: S = T. R3: they overlap and neither contains the other. R4: S contains T. R5:
    T contains S. For an empty set several of the paper's conditions hold at once. Such a pair is R1, so that
    every pair has one relation, and R1 are the pairs whose factor is 0.
    """
    shared, s, t = counts.shared, counts.anchor_size, counts.candidate_size
    relation_NB = torch.full_like(shared, 3, dtype=torch.int64)
    relation_NB[(shared == t) & (t < s)] = 4
    relation_NB[(shared == s) & (s < t)] = 5
    relation_NB[(shared == s) & (shared == t)] = 2
    relation_NB[shared == 0] = 1
    return relation_NB


def similarity_factor(counts: LabelCounts) -> Tensor:
    """Computes K^s = |S & T| / |S| (N, B), 0 for an empty S. Similarity-Dissimilarity, Eq. 14."""
    return ratio(counts.shared, counts.anchor_size)


def dissimilarity_factor(
    counts: LabelCounts, penalty: Penalty = "inverse", rate: float | None = None
) -> Tensor:
    """Computes K^d = 1 / (1 + |T - S|), or exp(-rate |T - S|) (N, B).

    Source: Similarity-Dissimilarity, Eq. 15; the exponential is the alternative that its later version
    discusses in appendix A.2 and does not adopt.

    Raises:
        ValueError: For an exponential penalty without a rate.
    """
    if penalty == "inverse":
        return 1 / (1 + counts.extra)
    if rate is None:
        raise ValueError("penalty exponential needs a rate")
    return torch.exp(-rate * counts.extra)


def equal_sets(counts: LabelCounts) -> Tensor:
    """Whether S = T, (N, B)."""
    return (counts.shared == counts.anchor_size) & (counts.shared == counts.candidate_size)
