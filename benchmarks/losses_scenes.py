"""The cases of the losses' benchmark: their generated inputs, and one pass of each contender.

A batch is two views of B/2 samples. Labels are skewed as real ones are: label l of L has a probability
proportional to l^-0.75, and rows differ in their number of labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import SupConLoss
from torch import Generator, Tensor, nn

from mlcl.labels import LabelRows
from mlcl.losses import LOSSES, build_loss

TEMPERATURE = 0.1
LABELS_PER_ROW = {20: 3.0, 80: 3.0, 1_000: 15.7, 8_692: 16.0}
ASPECTS, HIGHEST_RATING = 7, 3
LEVELS = (8, 64, 512)
"""The number of groups at each level of a path, coarse first."""
PATHS_PER_ROW = 1.2
"""The average number of paths per row, in the cases with several paths per row."""


@dataclass(frozen=True)
class Case:
    """A loss on an input. `labels` counts classes, labels, aspects or finest groups (0 without labels)."""

    loss: str
    kind: str
    rows: int
    labels: int
    dim: int

    @property
    def name(self) -> str:
        if (self.loss, self.kind) == ("jaccard", "ratings"):
            return "jaccard, ratings"
        return f"{self.loss}, several" if self.kind == "paths" else self.loss

    def __str__(self) -> str:
        return f"{self.name} at B={self.rows:,}, L={self.labels:,}"


@dataclass(frozen=True)
class Scene:
    """The inputs of a case: `embeddings` (B, D), a float32 leaf of unit length, and `sample_ids` (B,)."""

    embeddings: Tensor
    labels: Tensor | LabelRows | None
    sample_ids: Tensor


def cases_of(losses: list[str], rows: int, widths: list[int], dim: int) -> list[Case]:
    """Returns the cases of each loss for each width; paths, ratings and labels of samples have one width.

    Losses of paths have two cases, with one path per row and with several.
    """
    cases = []
    for loss in losses:
        kind = LOSSES[loss].labels
        if kind in ("none", "ratings", "path"):
            size = {"none": 0, "ratings": ASPECTS, "path": LEVELS[-1]}[kind]
            cases.append(Case(loss, kind, rows, size, dim))
        if kind == "path":
            cases.append(Case(loss, "paths", rows, LEVELS[-1], dim))
        if kind in ("class", "multi_label", "ratings"):
            label_kind = "multi_label" if kind == "ratings" else kind
            cases += [Case(loss, label_kind, rows, width, dim) for width in widths]
    return cases


def scene(case: Case) -> Scene:
    """Returns the inputs of a case, which are equal in every process."""
    generator = torch.Generator().manual_seed(0)
    samples = case.rows // 2
    sample_ids = torch.arange(samples).repeat(2)
    centre_SD = torch.randn(samples, case.dim, generator=generator)
    noise_BD = torch.randn(case.rows, case.dim, generator=generator)
    z_BD = F.normalize(centre_SD[sample_ids] + 0.5 * noise_BD, dim=1)
    labels = _labels(case.kind, samples, case.labels, generator)
    if isinstance(labels, LabelRows):
        labels = labels.take(sample_ids)
    elif labels is not None:
        labels = labels[sample_ids]
    return Scene(z_BD.requires_grad_(), labels, sample_ids)


def one_pass(contender: str, case: Case) -> Callable[[], float]:
    """Returns a function that runs forward and backward of a contender and returns the value.

    Contenders are `ours`, `bf16`, `dense` and `PML`.
    """
    inputs = scene(case)
    z_BD = inputs.embeddings
    loss = _loss(contender, case.loss)
    extra_inputs = () if contender == "PML" else (inputs.sample_ids,)

    def run() -> float:
        z_BD.grad = None
        value: Tensor = loss(_of_contender(contender, z_BD), inputs.labels, *extra_inputs)
        value.backward()
        return value.item()

    return run


def errors(contender: str, case: Case) -> tuple[float, float]:
    """Returns the relative errors of value and gradient (in norm) against `ours` in float64 on equal rows."""
    inputs = scene(case)
    results = []
    for loss, z_BD in (
        (_loss(contender, case.loss), _of_contender(contender, inputs.embeddings).detach()),
        (_loss("ours", case.loss), inputs.embeddings.detach().double()),
    ):
        z_BD.requires_grad_()
        value = loss(z_BD, inputs.labels, inputs.sample_ids)
        value.backward()
        assert z_BD.grad is not None
        results.append((value.detach().double(), z_BD.grad.double()))
    (value, gradient), (exact_value, exact_gradient) = results
    error = (gradient - exact_gradient).norm() / exact_gradient.norm()
    return float((value / exact_value - 1).abs()), float(error)


def _of_contender(contender: str, z_BD: Tensor) -> Tensor:
    return z_BD.bfloat16() if contender == "bf16" else z_BD


def two_products(rows: int, dim: int) -> Callable[[], None]:
    """Returns a function that computes the limit, S = Z Z^T and G = S Z, into allocated memory."""
    z_BD = torch.randn(rows, dim)
    s_BB, g_BD = torch.empty(rows, rows), torch.empty(rows, dim)

    def run() -> None:
        torch.mm(z_BD, z_BD.T, out=s_BB)
        torch.mm(s_BB, z_BD, out=g_BD)

    return run


def _loss(contender: str, name: str) -> nn.Module:
    if contender == "PML":
        # The definitions agree: every row has a positive, so the mean over such rows is the mean over all.
        peer: nn.Module = SupConLoss(temperature=TEMPERATURE)
        return peer
    return build_loss(name, temperature=TEMPERATURE, engine="dense" if contender == "dense" else "auto")


def _labels(kind: str, samples: int, width: int, generator: Generator) -> Tensor | LabelRows | None:
    if kind == "none":
        return None
    if kind == "ratings":
        return torch.randint(0, HIGHEST_RATING + 1, (samples, ASPECTS), generator=generator).float()
    probability_L = torch.arange(1, width + 1).float() ** -0.75
    if kind == "multi_label":
        return _label_rows(probability_L, samples, LABELS_PER_ROW.get(width, 3.0), generator)
    if kind == "paths":
        finest_rows = _label_rows(probability_L, samples, PATHS_PER_ROW, generator).lists()
        return LabelRows.of_levels(
            [
                LabelRows.from_lists(
                    [[label * groups // width for label in row] for row in finest_rows], groups
                )
                for groups in LEVELS
            ]
        )
    class_S = torch.multinomial(probability_L, samples, replacement=True, generator=generator)
    if kind == "class":
        return class_S
    return torch.stack([class_S // (LEVELS[-1] // groups) for groups in LEVELS], 1)


def _label_rows(probability_L: Tensor, samples: int, average: float, generator: Generator) -> LabelRows:
    """Returns rows with one label and a Poisson number of others, all different."""
    width = len(probability_L)
    rates = torch.full((samples,), average - 1)
    counts = (1 + torch.poisson(rates, generator)).clamp(max=width).int().tolist()
    sampled_labels = torch.multinomial(probability_L.expand(samples, width), max(counts), generator=generator)
    return LabelRows.from_lists(
        [row[:n] for row, n in zip(sampled_labels.tolist(), counts, strict=True)], width
    )
