"""Similarity-Dissimilarity: ANY's positives, weighed by how the label sets relate.

Shapes: B candidates, N anchors, L labels.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from mlcl.losses.relations import (
    LabelCounts,
    Penalty,
    count_pairs,
    dissimilarity_factor,
    similarity_factor,
)
from mlcl.losses.spec import Interval, LossSpec, Option, choice
from mlcl.losses.weighting import Weighting, others, safe_divide, uniform


def simdis_weights(
    y_BL: Tensor,
    anchors: slice,
    dtype: torch.dtype,
    *,
    form: Literal["weighted", "printed"] = "weighted",
    penalty: Penalty = "inverse",
    rate: float | None = None,
    normalizer: Literal["positives", "factors"] = "positives",
) -> Weighting:
    """W_ip = K_ip / |P(i)|, K_ip = K^s_ip K^d_ip, over ANY's positives P(i).

    `form="printed"` is Eq. 13 to the letter: K inside the logarithm, -1/|P| sum log(K p). There log K is
    constant in the embeddings, so the gradient is ANY's and the value ANY's plus -1/|P| sum log K. The paper
    speaks of re-weighted positives, which only `form="weighted"` does. `normalizer="factors"` divides by
    sum_p K_ip instead of |P(i)|.
    Source: Similarity-Dissimilarity, Eq. 13-15; `penalty="exponential"` from its later version, appendix A.2.
    """
    counts = count_pairs(y_BL[anchors], y_BL)
    positive_NB = (counts.shared > 0) & others(anchors, len(y_BL), y_BL.device)
    plain = uniform(positive_NB, dtype)
    if form == "printed":
        log_factor_NB = _log_factor(counts, penalty, rate).masked_fill(~positive_NB, 0)
        return Weighting(plain.weights, plain.positives, -(plain.weights * log_factor_NB).sum(1))
    factor_NB = similarity_factor(counts) * dissimilarity_factor(counts, penalty, rate) * positive_NB
    divisor_N = factor_NB.sum(1) if normalizer == "factors" else plain.positives.to(dtype)
    return Weighting(safe_divide(factor_NB, divisor_N[:, None]), plain.positives)


def _log_factor(counts: LabelCounts, penalty: Penalty, rate: float | None) -> Tensor:
    """log K; the exponential's logarithm is taken by hand, since K itself may underflow."""
    log_similarity_NB = similarity_factor(counts).log()
    if penalty == "exponential" and rate is not None:
        return log_similarity_NB - rate * counts.extra
    return log_similarity_NB + dissimilarity_factor(counts, penalty, rate).log()


def _conflict(options: Mapping[str, Any]) -> None:
    if (options["penalty"] == "exponential") != (options["rate"] is not None):
        raise ValueError(
            f"option rate of simdis goes with penalty exponential; found: penalty {options['penalty']}, "
            f"rate {options['rate']}; allowed: penalty exponential with a rate, penalty inverse without"
        )
    if options["form"] == "printed" and options["normalizer"] != "positives":
        raise ValueError(
            "option normalizer of simdis; found: factors with form printed; allowed: positives "
            "(Eq. 13 has no other)"
        )


SIMDIS = LossSpec(
    "simdis",
    "multi_label",
    "Similarity-Dissimilarity, Eq. 13-15",
    simdis_weights,
    {
        "form": choice("weighted", "printed"),
        "penalty": choice("inverse", "exponential"),
        "rate": Option(None, Interval(0, open_low=True, optional=True)),
        "normalizer": choice("positives", "factors"),
    },
    conflict=_conflict,
)
