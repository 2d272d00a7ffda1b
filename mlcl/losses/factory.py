"""The losses by name: build one, check its options, look at its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.batch import own_batch
from mlcl.losses.collectives import Group
from mlcl.losses.labels import Labels, check_shapes
from mlcl.losses.loss import ContrastiveLoss, Engine, Reduction, rule_labels
from mlcl.losses.options import in_words
from mlcl.losses.products import FloatProducts
from mlcl.losses.spec import LossSpec
from mlcl.losses.temperature import Temperature, as_temperature
from mlcl.plugins import Registry, UnknownPluginError

LOSSES = Registry("loss", "mlcl.losses", "mlcl.losses.rules", LossSpec)
"""Every loss by its name: built in, of installed packages, and of files that jobs name."""


def build_loss(
    name: str,
    *,
    temperature: float | Temperature = 0.1,
    reduction: Reduction = "mean",
    normalize: bool = False,
    gather: bool = False,
    group: Group | None = None,
    engine: Engine = "auto",
    products: FloatProducts = "exact",
    prototypes: tuple[int, int] | None = None,
    **options: Any,
) -> ContrastiveLoss:
    """The loss `name` as a module, see `ContrastiveLoss`; `options` are those of `LOSSES[name].options`.

    Raises ValueError for an unknown name, option or value, with what was found and what is allowed.
    """
    return ContrastiveLoss(
        _spec(name),
        as_temperature(temperature),
        reduction=reduction,
        normalize=normalize,
        gather=gather,
        group=group,
        engine=engine,
        products=products,
        prototypes=prototypes,
        options=options,
    )


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises ValueError where `build_loss` would refuse these options, naming option, found and allowed."""
    _spec(name).resolve(options)


def positive_weights(
    name: str, labels: Labels | None, sample_ids: Tensor | None = None, **options: Any
) -> Tensor:
    """The weights W (B, B) of a batch, float64, for inspection: row i has anchor i's positives.

    For hicone and himulcone, whose weights follow from the embeddings too: those where no pair is raised; for
    msc those without prototypes.

    Raises ValueError as the loss would.
    """
    spec = _spec(name)
    rows = labels if labels is not None else sample_ids
    rows_B0 = torch.empty(0 if rows is None else len(rows), 0)
    check_shapes(name, spec.labels, rows_B0, labels, sample_ids)
    arguments = spec.arguments(spec.resolve(options))
    batch = own_batch(rows_B0, sample_ids).labelled(None if spec.labels == "none" else labels)
    return spec.weighting(rule_labels(spec, batch), batch.anchors, torch.float64, arguments).weights


def _spec(name: str) -> LossSpec:
    try:
        return LOSSES[name]
    except UnknownPluginError as error:
        raise ValueError(f"{error}{error.hint}; allowed: {in_words(error.allowed)}") from None
