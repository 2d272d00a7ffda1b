"""Several losses on one embedding, which share the similarities and, at equal temperatures, the softmax.

Shapes: N rows of this process, D embedding, P losses, T distinct temperatures.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mlcl.losses.batch import Batch, own_batch, whole_batches
from mlcl.losses.collectives import world
from mlcl.losses.labels import Labels
from mlcl.losses.loss import ContrastiveLoss
from mlcl.losses.temperature import Temperature
from mlcl.losses.tiled_sum import tiled_sum, uncompiled


@uncompiled
def joint_loss(
    losses: Sequence[ContrastiveLoss],
    weights: Sequence[float],
    embeddings_ND: Tensor,
    labels: Sequence[Labels | None],
    sample_ids: Tensor | None = None,
    *,
    rows: Sequence[Batch] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """sum_p weight_p L_p, a scalar with gradient, and the L_p without: what the losses give one by one.

    One pass over the pairs for all of them; rows of other processes are gathered once, or are `rows`, those
    of each loss, see `gathered`. Raises ValueError for losses that cannot share (`sharing_key`), for a
    negative weight, and what a loss raises.
    """
    if not len(losses) == len(weights) == len(labels) > 0:
        found = f"{len(losses)} losses, {len(weights)} weights, {len(labels)} labels"
        raise ValueError(
            f"joint_loss needs as many weights and labels as losses, at least one; found: {found}"
        )
    keys = {sharing_key(loss) for loss in losses}
    if len(keys) != 1 or None in keys:
        names = ", ".join(loss.spec.name for loss in losses)
        raise ValueError(f"these losses cannot share a softmax: {names}")
    if not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"weights must be finite and 0 or more; found: {list(weights)}")
    for loss, given in zip(losses, labels, strict=True):
        loss.check(embeddings_ND, given, sample_ids)
    with torch.autocast(embeddings_ND.device.type, enabled=False):
        z_ND = losses[0].prepared(embeddings_ND)
        read = [loss.read(part) for loss, part in zip(losses, labels, strict=True)]
        rows = rows or losses[0].batches(z_ND, read, sample_ids)
        numbers, temperatures = _distinct_temperatures(losses)
        taus = [temperature.known() for temperature in temperatures]
        parts = [
            loss.part(batch, taus[number], weight, number)
            for loss, batch, weight, number in zip(losses, rows, weights, numbers, strict=True)
        ]
        if len({part.weights.repulsion for part in parts}) > 1:
            raise ValueError("losses whose weights differ in repulsion cannot share a softmax")
        tau_T = torch.stack([temperature.value().double() for temperature in temperatures])
        total, value_P = tiled_sum(
            z_ND, tau_T, losses[0].candidates(rows[0], embeddings_ND.dtype), taus, parts
        )
    return total, [value * part.reduction for value, part in zip(value_P, parts, strict=True)]


def gathered(
    groups: Sequence[Sequence[ContrastiveLoss]],
    embeddings: Sequence[Tensor],
    labels: Sequence[Sequence[Labels | None]],
    sample_ids: Tensor | None,
) -> list[list[Batch] | None]:
    """The rows of all processes for groups of losses, each on its embeddings (N, D_g) of the same N rows.

    For each loss with its labels; embeddings in one collective, labels of all losses in one. None for each
    group where a loss does not gather, or none has others to gather from, or their process groups differ.
    Raises ValueError as the losses do.
    """
    losses = [loss for group in groups for loss in group]
    if not losses or not all(loss.gather and loss.group is losses[0].group for loss in losses):
        return [None] * len(groups)
    first = losses[0]
    if world(first.group) == 1:
        return [None] * len(groups)
    read = []
    for group, z_ND, its in zip(groups, embeddings, labels, strict=True):
        for loss, given in zip(group, its, strict=True):
            loss.check(z_ND, given, sample_ids)
            read.append(loss.read(given))
    with torch.autocast(embeddings[0].device.type, enabled=False):
        parts = [group[0].prepared(z_ND) for group, z_ND in zip(groups, embeddings, strict=True)]
        own = own_batch(torch.cat(parts, 1), sample_ids)
        gradient = not all(loss.tiled for loss in losses)
        rows = iter(whole_batches(own, read, first.group, gradient=gradient))
        batches = [[next(rows) for _ in group] for group in groups]
        each = torch.split(batches[0][0].embeddings, [part.shape[1] for part in parts], 1)
        return [
            [replace(batch, embeddings=z_BD) for batch in its]
            for its, z_BD in zip(batches, (z_BD.contiguous() for z_BD in each), strict=True)
        ]


def sharing_key(loss: ContrastiveLoss) -> Hashable | None:
    """Losses with equal keys can share an embedding's softmax; None: this one shares with none."""
    if not loss.tiled or loss.spec.prototypes:
        return None
    return loss.spec.similarity, loss.normalize, loss.products, loss.gather, id(loss.group)


def _distinct_temperatures(losses: Sequence[ContrastiveLoss]) -> tuple[list[int], list[Temperature]]:
    """Which temperature each loss has, and the temperatures. Learned ones are shared as modules alone."""
    keys: list[Hashable] = []
    found: dict[Hashable, Temperature] = {}
    for loss in losses:
        learned = loss.temperature.value().requires_grad
        keys.append(id(loss.temperature) if learned else loss.temperature.number())
        found.setdefault(keys[-1], loss.temperature)
    numbers = {key: number for number, key in enumerate(found)}
    return [numbers[key] for key in keys], list(found.values())
