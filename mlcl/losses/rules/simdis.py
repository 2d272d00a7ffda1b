"""Similarity-Dissimilarity: the positives of ANY, weighted by the relation of the label sets."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from mlcl.losses.relations import LabelCounts, Penalty, dissimilarity_factor, similarity_factor
from mlcl.losses.spec import Interval, overlap_loss
from mlcl.losses.weights.overlap import OverlapRule, share_label


def simdis_rule(
    *,
    form: Literal["weighted", "printed"] = "weighted",
    factors: Literal["both", "similarity", "dissimilarity"] = "both",
    penalty: Penalty = "inverse",
    rate: Annotated[float | None, Interval(0, open_low=True, optional=True)] = None,
    normalizer: Literal["positives", "factors"] = "positives",
) -> OverlapRule:
    """W_ip = K_ip / |P(i)|, K_ip = K^s_ip K^d_ip, over ANY's positives P(i).

    `form="printed"` is Eq. 13 to the letter: K inside the logarithm, -1/|P| sum log(K p). There log K is
    constant in the embeddings, so the gradient equals that of ANY, and the value is that of ANY plus
    -1/|P| sum log K. The paper describes re-weighted positives, which only `form="weighted"` computes.
    `factors` selects K = K^s K^d (`both`), K^s or K^d. `normalizer="factors"` divides by sum_p K_ip instead
    of |P(i)|.
    Source: Similarity-Dissimilarity, Eq. 13-15; `penalty="exponential"` from its later version, appendix A.2.
    """

    def similarity_times_dissimilarity(counts: LabelCounts) -> tuple[Tensor, Tensor]:
        positive = counts.shared > 0
        if factors == "similarity":
            return positive, similarity_factor(counts)
        factor = dissimilarity_factor(counts, penalty, rate)
        return positive, factor * (similarity_factor(counts) if factors == "both" else positive)

    def log_factor(counts: LabelCounts) -> Tensor:
        # The logarithm is computed without the exponential, which may underflow.
        log_penalty = -rate * counts.extra if rate is not None else -torch.log1p(counts.extra)
        log_share = similarity_factor(counts).log()
        return {"both": log_share + log_penalty, "similarity": log_share, "dissimilarity": log_penalty}[
            factors
        ]

    if form == "printed":
        return OverlapRule(share_label, constant=log_factor)
    return OverlapRule(similarity_times_dissimilarity, normalizer=normalizer)


def _check_penalty(options: Mapping[str, Any]) -> None:
    if (options["penalty"] == "exponential") != (options["rate"] is not None):
        raise ValueError(
            f"option rate of simdis goes with penalty exponential; found: penalty {options['penalty']}, "
            f"rate {options['rate']}; allowed: penalty exponential with a rate, penalty inverse without"
        )
    if options["factors"] == "similarity" and options["penalty"] != "inverse":
        raise ValueError(
            "option penalty of simdis is of K^d; found: exponential with factors similarity; allowed: inverse"
        )
    if options["form"] == "printed" and options["normalizer"] != "positives":
        raise ValueError(
            "option normalizer of simdis; found: factors with form printed; allowed: positives "
            "(Eq. 13 has no other)"
        )


SIMDIS = overlap_loss(
    "simdis",
    simdis_rule,
    summary="rows that share a label attract by how their label sets relate",
    source="Similarity-Dissimilarity, Eq. 13-15",
    year=2024,
    conflict=_check_penalty,
)
