"""Contrastive losses: a rule computes the weights of pairs from labels; an engine computes the loss."""

from mlcl.losses.dense import Weighting
from mlcl.losses.factory import LOSSES, build_loss, check_options, positive_weights
from mlcl.losses.loss import ContrastiveLoss
from mlcl.losses.multi_loss import gather_rows, joint_loss, sharing_key
from mlcl.losses.relations import (
    LabelCounts,
    dissimilarity_factor,
    label_counts,
    relation,
    similarity_factor,
)
from mlcl.losses.similarities import FloatProducts
from mlcl.losses.spec import Interval, LossSpec, Option, options_of, overlap_loss
from mlcl.losses.stats import LossStats
from mlcl.losses.temperature import (
    ConstantTemperature,
    LearnedTemperature,
    ScheduledTemperature,
    Temperature,
)
from mlcl.losses.weights.overlap import OverlapRule

__all__ = [
    "LOSSES",
    "ConstantTemperature",
    "ContrastiveLoss",
    "FloatProducts",
    "Interval",
    "LabelCounts",
    "LearnedTemperature",
    "LossSpec",
    "LossStats",
    "Option",
    "OverlapRule",
    "ScheduledTemperature",
    "Temperature",
    "Weighting",
    "build_loss",
    "check_options",
    "dissimilarity_factor",
    "gather_rows",
    "joint_loss",
    "label_counts",
    "options_of",
    "overlap_loss",
    "positive_weights",
    "relation",
    "sharing_key",
    "similarity_factor",
]
