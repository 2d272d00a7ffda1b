"""Computes several losses of the same embeddings together.

They share the similarities and, at equal temperatures, the softmax.

Shapes: N rows of this process, D embedding, P losses, T distinct temperatures.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mlcl.losses.batch import LossRows, own_batch, whole_batches, world
from mlcl.losses.engine import disable_compile, tiled_sum
from mlcl.losses.labels import Labels
from mlcl.losses.loss import ContrastiveLoss
from mlcl.losses.temperature import Temperature


@disable_compile
def joint_loss(
    losses: Sequence[ContrastiveLoss],
    weights: Sequence[float],
    embeddings_ND: Tensor,
    labels: Sequence[Labels | None],
    sample_ids: Tensor | None = None,
    *,
    rows: Sequence[LossRows] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Computes a weighted sum of losses in one pass over the pairs, with one softmax for each temperature.

    Args:
        losses: P losses with one `sharing_key`.
        weights: The weight of each loss, 0 or more.
        embeddings_ND: (N, D), the same for all losses.
        labels: The labels of each loss.
        sample_ids: The sample of each row (N,).
        rows: The rows of all processes for each loss, if they were gathered before by `gather_rows`;
            otherwise they are gathered once for all losses.

    Returns:
        sum_p weight_p L_p, a scalar with gradient, and the values L_p without gradient, which equal the
        values of the losses called one by one.

    Raises:
        ValueError: For losses that cannot share a softmax, for a weight that is negative or not finite, and
            for inputs that one of the losses refuses.

    Example:
        >>> losses = [build_loss("supcon", temperature=0.1), build_loss("himulcon", temperature=0.5)]
        >>> embeddings, paths = torch.randn(8, 16, requires_grad=True), torch.randint(2, (8, 2))
        >>> total, values = joint_loss(losses, [0.7, 0.3], embeddings, [paths[:, 1], paths])
    """
    _check_fit(losses, weights, labels)
    pairs = zip(losses, labels, strict=True)
    checked_labels = [loss.check(embeddings_ND, loss_labels, sample_ids) for loss, loss_labels in pairs]
    with torch.autocast(embeddings_ND.device.type, enabled=False):
        z_ND = losses[0].prepare(embeddings_ND)
        rows = rows or losses[0].batches(z_ND, checked_labels, sample_ids)
        indices, temperatures = _distinct_temperatures(losses)
        taus = [temperature.engine_value() for temperature in temperatures]
        parts = [
            loss.part(batch, taus[index], weight, index)
            for loss, batch, weight, index in zip(losses, rows, weights, indices, strict=True)
        ]
        if len({part.weights.repulsion for part in parts}) > 1:
            raise ValueError("losses whose weights differ in repulsion cannot share a softmax")
        tau_T = torch.stack([temperature.value().double() for temperature in temperatures])
        total, value_P = tiled_sum(
            z_ND, tau_T, losses[0].candidates(rows[0], embeddings_ND.dtype), taus, parts
        )
    return total, [value * part.reduction for value, part in zip(value_P, parts, strict=True)]


def gather_rows(
    groups: Sequence[Sequence[ContrastiveLoss]],
    embeddings: Sequence[Tensor],
    labels: Sequence[Sequence[Labels | None]],
    sample_ids: Tensor | None,
) -> list[list[LossRows] | None]:
    """Gathers the rows of all processes for groups of losses, as `rows` of `forward` or `joint_loss`.

    The embeddings of all groups are gathered in one collective, the labels of all losses in another.

    Args:
        groups: Losses that share embeddings, group by group.
        embeddings: The embeddings (N, D_g) of each group, of the same N rows.
        labels: The labels of each loss, group by group.
        sample_ids: The sample of each row (N,).

    Returns:
        The rows of each loss, group by group. None in place of every group if one of the losses does not
        gather, if there is only one process, or if the losses' process groups differ.

    Raises:
        ValueError: For inputs that one of the losses refuses.
    """
    losses = [loss for group in groups for loss in group]
    alike = all(loss.gather and loss.group is losses[0].group for loss in losses)
    if not losses or not alike or world(losses[0].group) == 1:
        return [None] * len(groups)
    checked_labels = [
        loss.check(z_ND, loss_labels, sample_ids)
        for group, z_ND, group_labels in zip(groups, embeddings, labels, strict=True)
        for loss, loss_labels in zip(group, group_labels, strict=True)
    ]
    with torch.autocast(embeddings[0].device.type, enabled=False):
        parts = [group[0].prepare(z_ND) for group, z_ND in zip(groups, embeddings, strict=True)]
        own_rows = own_batch(torch.cat(parts, 1), sample_ids)
        gradient = not all(loss.tiled for loss in losses)
        rows = iter(whole_batches(own_rows, checked_labels, losses[0].group, gradient=gradient))
        batches = [[next(rows) for _ in group] for group in groups]
        split_embeddings = torch.split(batches[0][0].embeddings, [part.shape[1] for part in parts], 1)
        return [
            [replace(batch, embeddings=z_BD) for batch in group_batches]
            for group_batches, z_BD in zip(
                batches, (z_BD.contiguous() for z_BD in split_embeddings), strict=True
            )
        ]


def sharing_key(loss: ContrastiveLoss) -> Hashable | None:
    """Returns a key, equal for losses that `joint_loss` takes together; None if it takes no such loss."""
    if not loss.tiled or loss.spec.prototypes or loss.spec.own_softmax or loss.queue is not None:
        return None
    return loss.spec.similarity, loss.normalize, loss.products, loss.gather, id(loss.group)


def _check_fit(
    losses: Sequence[ContrastiveLoss], weights: Sequence[float], labels: Sequence[Labels | None]
) -> None:
    if not len(losses) == len(weights) == len(labels) > 0:
        counts = f"{len(losses)} losses, {len(weights)} weights, {len(labels)} labels"
        raise ValueError(
            f"joint_loss needs as many weights and labels as losses, at least one; found: {counts}"
        )
    keys = {sharing_key(loss) for loss in losses}
    if len(keys) != 1 or None in keys:
        names = ", ".join(loss.spec.name for loss in losses)
        raise ValueError(f"these losses cannot share a softmax: {names}")
    if not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"weights must be finite and 0 or more; found: {list(weights)}")


def _distinct_temperatures(losses: Sequence[ContrastiveLoss]) -> tuple[list[int], list[Temperature]]:
    """Returns, for each loss, the index of its temperature, and the temperatures, equal constants merged."""
    keys: list[Hashable] = []
    temperatures: dict[Hashable, Temperature] = {}
    for loss in losses:
        learned = loss.temperature.value().requires_grad
        keys.append(id(loss.temperature) if learned else loss.temperature.number())
        temperatures.setdefault(keys[-1], loss.temperature)
    order = list(temperatures)
    return [order.index(key) for key in keys], list(temperatures.values())
