"""Finds losses by name: builds a loss, checks its options, and computes its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.batch import Group, own_batch
from mlcl.losses.labels import Labels, check_shapes
from mlcl.losses.loss import ContrastiveLoss, Engine, Reduction, rule_labels
from mlcl.losses.similarities import FloatProducts
from mlcl.losses.spec import LossSpec
from mlcl.losses.temperature import Temperature, as_temperature
from mlcl.plugins import Registry, UnknownPluginError

LOSSES = Registry("loss", "mlcl.losses", "mlcl.losses.rules", LossSpec)
"""All losses by name: built-in losses, those of installed packages, and those of files that jobs name."""


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
    queue: int | None = None,
    **options: Any,
) -> ContrastiveLoss:
    """Builds a loss by its name, as a module.

    Args:
        name: A name of `LOSSES`; `mlcl losses` lists them.
        temperature: tau, a number above 0 or a `Temperature`.
        reduction: `mean` over all anchors, where an anchor without a positive counts 0; `mean_valid` over the
            anchors with a positive; `sum`; `none` for the terms (N,).
        normalize: Whether rows are scaled to unit length first; a row shorter than 1.2e-7 counts as zero, see
            `unit_rows`.
        gather: Whether candidates and anchors are the rows of all processes. Each process returns its part
            times the number of processes, so that DDP's mean over processes is the loss of the whole batch in
            value and gradient (with `none`: the own terms, unscaled). All processes must scale it alike.
        group: The process group to gather from; by default all processes.
        engine: `tiled` needs O(B D) memory and computes the gradient in the forward, so it cannot be
            differentiated twice. `dense` is the definition, O(N B) with autograd. `auto` is tiled, but takes
            W as a matrix for reduction `none`, for a loss without a closed form (logged once), and for small
            batches of one process.
        products: How the tiled engine multiplies float32 rows: `exact` or `tf32`. It multiplies bfloat16
            embeddings in bfloat16, with float32 sums and logits. Distances and small batches are exact.
        prototypes: The shape (labels, dimension) of learned prototypes, which msc and reg may have; their
            initial values are random rows of unit length.
        queue: The largest number of past rows as further candidates, see `Queue`; not for hicone, himulcone.
        options: The options of the loss, see `LOSSES[name].options`.

    Returns: The module; `ContrastiveLoss.forward` says which labels it takes.

    Raises: ValueError for an unknown name or option, and for a value or prototypes that are not allowed.

    Example:
        >>> loss = build_loss("simdis", temperature=0.07, normalize=True)
        >>> embeddings, labels = torch.randn(8, 16, requires_grad=True), torch.randint(2, (8, 5))
        >>> loss(embeddings, labels).backward()
    """
    return ContrastiveLoss(
        _find_spec(name),
        as_temperature(temperature),
        reduction=reduction,
        normalize=normalize,
        gather=gather,
        group=group,
        engine=engine,
        products=products,
        prototypes=prototypes,
        queue=queue,
        options=options,
    )


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises ValueError, which names the allowed values, if `build_loss` would refuse these options."""
    _find_spec(name).resolve(options)


def positive_weights(
    name: str, labels: Labels | None, sample_ids: Tensor | None = None, **options: Any
) -> Tensor:
    """Computes the weights W of a batch, for inspection.

    The weights of hicone and himulcone depend on the embeddings, too: they are returned as if no pair loss
    were raised. The weights of msc and reg are those without prototypes.

    Args:
        name: A name of `LOSSES`.
        labels: The labels of B rows, as `ContrastiveLoss.forward` takes them.
        sample_ids: The sample of each row (B,).
        options: The options of the loss.

    Returns:
        W (B, B) float64; row i has the weights of anchor i's positives.

    Raises:
        ValueError: The loss refuses the labels, the sample ids or an option.

    Example:
        >>> positive_weights("supcon", torch.tensor([0, 0, 1])).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    spec = _find_spec(name)
    rows = labels if labels is not None else sample_ids
    rows_B0 = torch.empty(0 if rows is None else len(rows), 0)
    check_shapes(name, spec.labels, rows_B0, labels, sample_ids)
    arguments = spec.arguments(spec.resolve(options))
    batch = own_batch(rows_B0, sample_ids).with_labels(None if spec.labels == "none" else labels)
    return spec.weighting(rule_labels(spec, batch), batch.anchors, torch.float64, arguments).weights


def _find_spec(name: str) -> LossSpec:
    try:
        return LOSSES[name]
    except UnknownPluginError as error:
        raise ValueError(f"{error}{error.hint}; allowed: {', '.join(error.allowed)}") from None
