"""The classifier of the objective, its losses for classes and for labels, and class and label weights.

Shapes: R rows (samples x views), N training rows, O the encoder's output, C classes, L labels, A aspects; K
targets of a row: its labels or aspects, or one class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.config import ClassifierConfig
from mlcl.labels import LabelRows, copy_to_device

Labels = Tensor | LabelRows


class CrossEntropy(nn.Module):
    """-log p of the right class, times the weight of that class.

    `weight_AC` has the weights of the classes, in one row for each aspect, or in a single row for a task
    without aspects. They are constants, and no checkpoint contains them.
    """

    def __init__(self, weight_AC: Tensor | None = None) -> None:
        super().__init__()
        self.weight_AC: Tensor | None
        self.register_buffer("weight_AC", weight_AC, persistent=False)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns losses (R, K) for logits (R, C) or (R, A, C); 0 for an unknown target, which is -1."""
        target_RK = targets.reshape(len(targets), -1)
        flat = logits.reshape(target_RK.numel(), logits.shape[-1])
        term_RK = F.cross_entropy(flat, target_RK.flatten(), ignore_index=-1, reduction="none")
        term_RK = term_RK.reshape(target_RK.shape)
        if self.weight_AC is None:
            return term_RK
        aspect_K = torch.arange(target_RK.shape[1], device=targets.device)
        return term_RK * self.weight_AC[aspect_K, target_RK.clamp(min=0)]


class BinaryCrossEntropy(nn.Module):
    """-(w_l y log p + (1 - y) log(1 - p)) for each label l; `weight_L` has the constants w, by default 1."""

    def __init__(self, weight_L: Tensor | None = None) -> None:
        super().__init__()
        self.weight_L: Tensor | None
        self.register_buffer("weight_L", weight_L, persistent=False)

    def forward(self, logit_RL: Tensor, target_RL: Tensor) -> Tensor:
        """Returns losses (R, L) for logits and targets of 0 and 1."""
        weight = self.weight_L
        return F.binary_cross_entropy_with_logits(logit_RL, target_RL, pos_weight=weight, reduction="none")


class AsymmetricLoss(nn.Module):
    """The asymmetric loss of each label, which weighs down easy negatives more than easy positives.

        y = 1:  -(1 - p)^gamma_pos log p
        y = 0:  -(p_m)^gamma_neg log(1 - p_m),   p_m = max(p - clip, 0)

    With gammas and clip 0 it is the binary cross-entropy. The gradient flows through the powers, too.
    Source: Ridnik et al. 2021, Asymmetric Loss For Multi-Label Classification, Eq. 1, 4 and 5; its settings
    are gamma_pos 0, gamma_neg 4, clip 0.05.
    """

    def __init__(self, gamma_pos: float, gamma_neg: float, clip: float) -> None:
        super().__init__()
        self.gamma_pos, self.gamma_neg, self.clip = gamma_pos, gamma_neg, clip

    def forward(self, logit_RL: Tensor, target_RL: Tensor) -> Tensor:
        """Returns losses (R, L) for logits and targets of 0 and 1."""
        log_clip = logit_RL.new_full((), self.clip).log()
        # log(1 - p + clip), at most 0, without a 1 - p that rounds to 0 before its logarithm.
        log_rest_RL = torch.logaddexp(F.logsigmoid(-logit_RL), log_clip).clamp(max=0)
        positive_RL = _safe_power(torch.sigmoid(-logit_RL), self.gamma_pos) * F.logsigmoid(logit_RL)
        negative_RL = _safe_power(torch.sigmoid(logit_RL) - self.clip, self.gamma_neg) * log_rest_RL
        return -torch.where(target_RL > 0, positive_RL, negative_RL)


def _safe_power(base: Tensor, exponent: float) -> Tensor:
    """Returns base^exponent, with gradient 0 where the base is not positive, for any exponent."""
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** exponent


class Classifier(nn.Module):
    """A classifier with its loss, and its weight in the objective.

    `linear` maps the encoder's output to logits. `loss` computes the loss of each target (R, K), or of each
    row (R, 1); an unknown label's target is -1. The reduction `mean` is the mean over the known targets of
    all rows; `sum_labels` is the sum over the known targets of a row, averaged over rows with a known target.
    `regulariser` computes a term that is added to the loss.
    """

    def __init__(
        self,
        linear: nn.Module,
        weight: float,
        loss: nn.Module,
        reduction: Literal["mean", "sum_labels"] = "mean",
        regulariser: Callable[[], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.linear, self.weight, self.loss = linear, weight, loss
        self.reduction, self.regulariser = reduction, regulariser

    def forward(self, output_RO: Tensor, targets: Labels) -> Tensor:
        """Returns the unweighted loss, a scalar, whose mean over ranks is the loss of the whole batch.

        Targets are LabelRows (R, L), or classes (R,) or (R, A), -1 for an unknown class.
        """
        logits = self.logits(output_RO)
        if isinstance(targets, LabelRows):
            rows = targets.to(logits.device)
            target_RL, mask_RL = rows.dense(logits.dtype), rows.known()
            term_RK = self.loss(logits, target_RL if mask_RL is None else target_RL.masked_fill(~mask_RL, -1))
            known_RK = torch.ones_like(term_RK, dtype=torch.bool)
            if mask_RL is not None:
                known_RK = mask_RL if term_RK.shape == mask_RL.shape else mask_RL.any(1, keepdim=True)
                term_RK = term_RK.where(known_RK, 0)
        else:
            targets = copy_to_device(targets, logits.device)
            term_RK = self.loss(logits, targets)
            known_RK = targets.reshape(term_RK.shape) >= 0
        counted = known_RK.any(1) if self.reduction == "sum_labels" else known_RK
        value = _mean_over_ranks(term_RK.sum(), counted.sum().to(logits.dtype))
        return value if self.regulariser is None else value + self.regulariser()

    def logits(self, output_RO: Tensor) -> Tensor:
        """Returns the logits (R, C), (R, L) or (R, A, C), in at least float32."""
        # Autocast would round the logits to bf16, and float32 sums cannot undo that.
        with torch.autocast(output_RO.device.type, enabled=False):
            logits: Tensor = self.linear(output_RO if output_RO.dtype == torch.float64 else output_RO.float())
        return logits


def _mean_over_ranks(total: Tensor, count: Tensor) -> Tensor:
    """Returns total * world size / sum of all ranks' counts, since DDP averages gradients over ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return total / count.clamp(min=1)
    count = count.clone()
    dist.all_reduce(count)
    return total * dist.get_world_size() / count.clamp(min=1)


def classifier_loss(config: ClassifierConfig, target_weight: Tensor | None) -> nn.Module:
    """Builds the loss that a job names; `target_weight` has the weights of labels or classes."""
    if config.loss == "bce":
        return BinaryCrossEntropy(target_weight)
    if config.loss == "zlpr":
        return ZeroBoundedRanking()
    if config.loss == "asl":
        return AsymmetricLoss(config.gamma_pos, config.gamma_neg, config.clip)
    return CrossEntropy(target_weight)


def target_weight(config: ClassifierConfig, targets: Labels, classes: int) -> Tensor | None:
    """Computes the weights of labels (L,), or of classes by aspect (A, C), from the training targets.

    With `balanced` a label's weight is the number of rows without it / the number of rows with it, and a
    class's weight is 1 / its number of rows; `sqrt` takes the square root of these ratios. The weights of
    classes are then scaled to mean 1 over the rows. Counts are at least 1, and rows in which a label is
    unknown are not counted for it. Returns None if the job sets no weights.
    """
    if isinstance(targets, LabelRows):
        if config.pos_weight == "none":
            return None
        with_L = torch.bincount(targets.columns, minlength=classes)
        known_L: int | Tensor = len(targets)
        if targets.unknown is not None:
            known_L = len(targets) - torch.bincount(targets.unknown.columns, minlength=classes)
        ratio_L = (known_L - with_L).clamp(min=1) / with_L.clamp(min=1)
        return ratio_L if config.pos_weight == "balanced" else ratio_L.sqrt()
    if config.class_weight == "none":
        return None
    columns = targets.reshape(len(targets), -1).unbind(1)
    rows_AC = torch.stack([torch.bincount(column[column >= 0], minlength=classes) for column in columns])
    weight_AC = rows_AC.clamp(min=1) ** (-1.0 if config.class_weight == "balanced" else -0.5)
    total_A1 = (weight_AC * rows_AC).sum(1, keepdim=True)
    return weight_AC * rows_AC.sum(1, keepdim=True) / total_A1.clamp(min=1)


class ZeroBoundedRanking(nn.Module):
    """The zero-bounded log-sum-exp and pairwise rank-based loss (ZLPR) of a row with the logits s.

        log(1 + sum_{l absent} exp(s_l)) + log(1 + sum_{l present} exp(-s_l))

    It ranks each label of the row above each other label, and 0, the logit of the probability 1/2, between
    them. A label that is not known is in neither sum.
    Source: Su et al. 2022, ZLPR: A Novel Loss for Multi-label Classification (arXiv 2208.02955).
    """

    def forward(self, logit_RL: Tensor, target_RL: Tensor) -> Tensor:
        """Returns losses (R, 1) for logits and targets of 0, 1 and, for an unknown entry, -1."""
        zero_R1 = logit_RL.new_zeros(len(logit_RL), 1)
        absent_RL = logit_RL.masked_fill(target_RL != 0, -math.inf)
        present_RL = (-logit_RL).masked_fill(target_RL <= 0, -math.inf)
        absent_R1, present_R1 = (
            torch.cat([zero_R1, masked_RL], dim=1).logsumexp(1, keepdim=True)
            for masked_RL in (absent_RL, present_RL)
        )
        return absent_R1 + present_R1
