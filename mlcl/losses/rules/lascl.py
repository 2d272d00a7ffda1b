"""LASCL: rows of one class attract; a negative's temperature grows with the levels that the classes share.

Shapes: B rows, N anchors, H levels; I, J of a tile.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from mlcl.labels import copy_to_device
from mlcl.losses.dense import Weighting, candidate_mask, safe_divide, uniform_weighting
from mlcl.losses.rules.himulcon import PathLabels, paths_of
from mlcl.losses.spec import Interval, LossSpec
from mlcl.losses.weights.base import EXCLUDED, BatchRanks, PairWeights
from mlcl.losses.weights.several_paths import Paths

Unrelated = Annotated[float, Interval(0, 1, open_low=True)]
Denominator = Literal["negatives", "candidates"]


def class_similarity(depth: Tensor, levels: int, unrelated: float, dtype: torch.dtype) -> Tensor:
    """Computes w = unrelated + (1 - unrelated) depth / H from the numbers of levels that pairs share."""
    return unrelated + (1 - unrelated) / levels * depth.to(dtype)


def lascl_weights(
    labels: PathLabels,
    anchors: slice,
    dtype: torch.dtype,
    *,
    unrelated: Unrelated = 0.5,  # noqa: ARG001 - W does not depend on it
    denominator: Denominator = "negatives",  # noqa: ARG001 - nor on this
) -> Weighting:
    """W_ip = 1[p in P(i)] / |P(i)|, where P(i) are the other rows that share the finest level with i."""
    paths, count = paths_of(labels), len(labels)
    finest_NB = paths.depth(anchors, slice(0, count)) == paths.levels
    return uniform_weighting(finest_NB & candidate_mask(anchors, count, finest_NB.device), dtype)


def lascl_terms(
    logit_BB: Tensor, labels: PathLabels, *, unrelated: Unrelated, denominator: Denominator
) -> Tensor:
    """Computes the terms L_i = 1/|P(i)| sum_{p in P(i)} [log sum_a exp(s_ia / (tau w_ia)) - s_ip/tau] (B,).

    w_ia = unrelated + (1 - unrelated) d_ia / H, where d_ia is the number of levels that i and a share, so
    that w is 1 for positives. The sum is over the negatives, the rows that are neither i nor in P(i), and
    with `denominator="candidates"` over all rows but i. An anchor whose sum is empty has the term 0.
    `lascl_weights` says what P(i) is, `himulcon_weights` what `labels` are.
    Source: LASCL (Lian et al. 2024, arXiv 2402.00232), the loss between instances, in the form of its
    published code. There w is the cosine of the embeddings of the two classes' texts, which name the parents.
    """
    paths, all_rows = paths_of(labels), slice(0, len(labels))
    depth_BB = copy_to_device(paths.depth(all_rows, all_rows), logit_BB.device)
    w_BB = class_similarity(depth_BB, paths.levels, unrelated, logit_BB.dtype)
    candidate_BB = candidate_mask(all_rows, len(labels), logit_BB.device)
    if denominator == "negatives":
        candidate_BB &= depth_BB < paths.levels
    lse_B1 = (logit_BB / w_BB).masked_fill(~candidate_BB, EXCLUDED).logsumexp(1, keepdim=True)
    loss_BB = torch.where(candidate_BB.any(1, keepdim=True), lse_B1 - logit_BB, 0)
    return (lascl_weights(labels, all_rows, logit_BB.dtype).to(logit_BB.device).weights * loss_BB).sum(1)


class LasclWeights(PairWeights):
    """The weights W, with the factors 1 / w of the logits in the softmax's sum."""

    def __init__(
        self,
        paths: Paths,
        label_weights: PairWeights,
        has_positive_N: Tensor,
        unrelated: float,
        *,
        excludes: bool,
    ) -> None:
        self._paths, self._label_weights, self._unrelated_similarity = paths, label_weights, unrelated
        self._has_positive_N = has_positive_N
        self.row_sums = label_weights.row_sums
        self.excludes = excludes
        self.largest_factor = 1 / unrelated
        self._latest_tile: tuple[slice, slice, Tensor, Tensor] | None = None

    def has_positive(self) -> Tensor:
        """Whether each own anchor has a positive, also without negatives, as bool (N,)."""
        return self._has_positive_N

    def attract(self, z_BD: Tensor) -> Tensor:
        """Returns the own rows of (W + W^T) Z (N, D)."""
        return self._label_weights.attract(z_BD)

    def excluded_pairs(self, rows: slice, cols: slice) -> Tensor:
        """Whether pairs of a tile share the finest level (I, J)."""
        return self._compute_tile(rows, cols)[0]

    def factors(self, rows: slice, cols: slice) -> Tensor:
        """Returns 1 / w of a tile (I, J)."""
        return self._compute_tile(rows, cols)[1]

    def _compute_tile(self, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """Returns whether pairs share the finest level, and 1 / w (I, J); keeps those of the latest tile."""
        if self._latest_tile is None or self._latest_tile[:2] != (rows, cols):
            depth_IJ, levels = self._paths.depth(rows, cols), self._paths.levels
            w_IJ = class_similarity(depth_IJ, levels, self._unrelated_similarity, self.row_sums.dtype)
            self._latest_tile = rows, cols, depth_IJ == levels, w_IJ.reciprocal_()
        return self._latest_tile[2:]

    def to(self, device: torch.device) -> PairWeights:
        """Moves all tensors of the weights to a device, and returns the object."""
        self._label_weights.to(device)
        return super().to(device)


def lascl_closed(
    labels: PathLabels, ranks: BatchRanks, *, unrelated: Unrelated, denominator: Denominator
) -> LasclWeights:
    """Returns the weights for the tiled engine."""
    paths, own_rows = paths_of(labels, ranks), ranks.own
    count_HB = paths.counts()
    excludes, count_B = denominator == "negatives", count_HB[-1]
    used_B = count_B > 0
    if excludes:
        used_B &= count_B < len(labels) - 1
    weight_HB = torch.zeros(count_HB.shape, dtype=ranks.dtype, device=count_HB.device)
    weight_HB[-1] = safe_divide(used_B.to(ranks.dtype), count_B.to(ranks.dtype))
    weights = paths.weights(weight_HB, used_B[:own_rows].to(ranks.dtype))
    return LasclWeights(paths, weights, count_B[:own_rows] > 0, unrelated, excludes=excludes)


LASCL = LossSpec(
    name="lascl",
    labels="path",
    summary="rows of one class attract, and repel classes the more the fewer levels they share",
    source="LASCL (Lian et al. 2024, arXiv 2402.00232)",
    year=2024,
    dense=lascl_weights,
    closed=lascl_closed,
    terms=lascl_terms,
    own_softmax=True,
    queue=True,
    on_host=True,
)
