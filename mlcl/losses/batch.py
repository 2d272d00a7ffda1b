"""The rows that a loss compares: those of this process alone, or those of all processes, own rows first.

Processes may hold different numbers of rows.
Shapes: N own rows, B rows of all processes, D embedding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses.labels import Labels
from mlcl.losses.weights.base import BatchRanks

Group = Any  # dist.ProcessGroup, a class that a torch built without distributed lacks


class ManyRanks(BatchRanks):
    """A batch spread over the processes of `group`, of which rank r holds `counts[r]` rows.

    Each process orders all rows with its own rows first, then those of the following ranks, in a circle.
    """

    def __init__(self, counts: Sequence[int], group: Group | None, z_ND: Tensor) -> None:
        super().__init__(len(z_ND), z_ND.dtype, z_ND.device)
        self.size = len(counts)
        self.counts = counts
        self.group = group
        self._start = _own_slice(counts, group).start
        self._total = sum(counts)

    def gather(self, own_values: Tensor) -> Tensor:
        """Gathers values (N, ...) of each process's own rows; returns those of all rows, own rows first."""
        return self.put_own_first(_gather_tensor(own_values, self.counts, self.group))

    def put_own_first(self, rows: Tensor) -> Tensor:
        """Reorders rows from the order of ranks to this process's order."""
        return torch.roll(rows, -self._start, 0)

    def put_own_labels_first(self, rows: Labels) -> Labels:
        """Reorders labels from the order of ranks to this process's order."""
        if isinstance(rows, Tensor):
            return self.put_own_first(rows)
        return rows.take(self.put_own_first(torch.arange(len(rows), device=rows.device)))

    def global_rows(self, row: Tensor) -> Tensor:
        """Converts row numbers of this process, own rows first, to row numbers in the order of ranks."""
        return torch.remainder(row + self._start, max(self._total, 1))

    def local_rows(self, row: Tensor) -> Tensor:
        """Converts row numbers in the order of ranks to row numbers of this process, own rows first."""
        return torch.remainder(row - self._start, max(self._total, 1))


@dataclass(frozen=True)
class LossRows:
    """All candidates of a batch: embeddings (B, D), labels and sample ids.

    Labels and ids may be in the host's memory although the embeddings are not. The last `ranks.queued` rows
    are those of a queue.
    """

    embeddings: Tensor
    labels: Labels | None
    sample_ids: Tensor | None
    ranks: BatchRanks

    @property
    def anchors(self) -> slice:
        """The slice of this process's own rows."""
        return slice(0, self.ranks.own)

    def with_labels(self, labels: Labels | None) -> LossRows:
        """Returns a copy with the given labels; for None, returns the object unchanged."""
        return (
            self if labels is None else replace(self, labels=_move_off_device(labels, self.embeddings.device))
        )


def own_batch(z_ND: Tensor, sample_ids: Tensor | None) -> LossRows:
    """Returns the rows of this process alone, without labels."""
    samples = None if sample_ids is None else _move_off_device(sample_ids, z_ND.device)
    return LossRows(z_ND, None, samples, BatchRanks(len(z_ND), z_ND.dtype, z_ND.device))


def whole_batches(
    own_rows: LossRows, labels: Sequence[Labels | None], group: Group | None, *, gradient: bool
) -> list[LossRows]:
    """Gathers the rows of all processes; returns one `LossRows` with these rows for each of `labels`.

    Each of `labels` has labels of all own rows, or is None. Three collectives gather the sizes, the
    embeddings, and all labels with the sample ids; the last is sent from the host's memory if the group can
    do so. With `gradient` the gradient of the rows flows back to the process that holds them.
    """
    carrier = torch.device("cpu") if gathers_on_host(group) else own_rows.embeddings.device
    label_parts = [part.to(carrier) for part in (own_rows.sample_ids, *labels) if part is not None]
    sizes = _gather_sizes(own_rows.ranks.own, label_parts, carrier, group)
    counts = [size[0] for size in sizes]
    ranks = ManyRanks(counts, group, own_rows.embeddings)
    if gradient:
        z_BD = ranks.put_own_first(_GatherRows.apply(own_rows.embeddings, counts, group))
    else:
        z_BD = ranks.gather(own_rows.embeddings)
    parts: Iterator[Any] = map(ranks.put_own_labels_first, _gather_parts(label_parts, sizes, group))
    samples = None if own_rows.sample_ids is None else next(parts)
    rows = LossRows(z_BD, None, samples, ranks)
    return [rows if part is None else replace(rows, labels=next(parts)) for part in labels]


def world(group: Group | None) -> int:
    """Returns the number of processes that share the batch: 1 if torch.distributed is not initialised."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size(group)


def gathers_on_host(group: Group | None) -> bool:
    """Whether the group's processes can send tensors in the host's memory, which NCCL alone cannot."""
    return "cpu:" in dist.get_backend_config(group)


def _move_off_device(values: Any, device: torch.device) -> Any:
    """Returns labels or ids in the host's memory unchanged; moves those on a device to `device`."""
    return values if values.device.type == "cpu" else values.to(device)


def _own_slice(counts: Sequence[int], group: Group | None) -> slice:
    """Returns the slice of this rank's rows among all rows in the order of ranks."""
    rank = dist.get_rank(group)
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])


def _gather_tensor(rows: Tensor, counts: Sequence[int], group: Group | None) -> Tensor:
    """Gathers the rows of all ranks in rank order, without gradient; pads them meanwhile to equal numbers."""
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows.detach()
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _GatherRows(torch.autograd.Function):
    """Gathers the rows of all ranks; its backward sums the gradient of the own rows over the ranks."""

    @staticmethod
    def forward(ctx: Any, z_ND: Tensor, counts: Sequence[int], group: Group | None) -> Tensor:
        ctx.own, ctx.group = _own_slice(counts, group), group
        return _gather_tensor(z_ND, counts, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad_BD = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad_BD, group=ctx.group)
        return grad_BD[ctx.own], None, None


def _gather_sizes(
    rows: int, parts: Sequence[Labels], device: torch.device, group: Group | None
) -> list[list[int]]:
    """Gathers the sizes of each rank in one collective, and returns a list of them for each rank.

    They are the rank's number of rows and, for each part, the width of its rows and the length of
    `_to_words`.
    """
    own_sizes = [rows, *(size for part in parts for size in (_width(part), len(_to_words(part))))]
    local_sizes = torch.tensor(own_sizes, dtype=torch.int64, device=device)
    rank_sizes = [torch.empty_like(local_sizes) for _ in range(world(group))]
    dist.all_gather(rank_sizes, local_sizes, group=group)
    sizes: list[list[int]] = torch.stack(rank_sizes).tolist()
    return sizes


def _gather_parts(parts: Sequence[Labels], sizes: list[list[int]], group: Group | None) -> list[Labels]:
    """Gathers labels or ids of all ranks in one collective; `sizes` are those that `_gather_sizes` returns.

    Raises ValueError if label rows of the ranks differ in width.
    """
    if not parts:
        return []
    for index in range(len(parts)):
        widths = [size[1 + 2 * index] for size in sizes]
        if len(set(widths)) > 1:
            raise ValueError(f"label rows of different widths on the ranks: {widths}")
    local_words = torch.cat([_to_words(part) for part in parts])
    words = _gather_tensor(local_words, [sum(size[2::2]) for size in sizes], group)
    chunks = iter(torch.split(words, [count for size in sizes for count in size[2::2]]))
    ranks = [[next(chunks) for _ in parts] for _ in sizes]
    counts = [size[0] for size in sizes]
    return [
        _from_words(part, vectors, counts)
        for part, vectors in zip(parts, zip(*ranks, strict=True), strict=True)
    ]


def _width(part: Labels) -> int:
    return part.width if isinstance(part, LabelRows) else math.prod(part.shape[1:])


def _to_words(part: Labels) -> Tensor:
    """Returns all values as one int64 vector; of label rows, each row's number of labels, then the labels."""
    if isinstance(part, LabelRows):
        return torch.cat([part.counts(), part.columns])
    flat = part.detach().reshape(-1)
    return flat.double().view(torch.int64) if flat.is_floating_point() else flat.long()


def _from_words(template: Labels, words: Sequence[Tensor], counts: Sequence[int]) -> Labels:
    """Inverts `_to_words`: joins the vectors of ranks with `counts` rows to one value typed as `template`."""
    if isinstance(template, LabelRows):
        pairs = list(zip(words, counts, strict=True))
        count_B = torch.cat([word[:count] for word, count in pairs])
        columns = torch.cat([word[count:] for word, count in pairs])
        return LabelRows(F.pad(count_B.cumsum(0), (1, 0)), columns, template.width, template.levels)
    flat = torch.cat(list(words))
    flat = flat.view(torch.float64) if template.is_floating_point() else flat
    return flat.to(template.dtype).view(sum(counts), *template.shape[1:])
