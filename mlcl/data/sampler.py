"""The batches of an epoch: global, seeded, and the same for any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Order = Callable[[np.random.Generator], NDArray[np.int64]]
"""Draws the rows of an epoch, as many as there are rows, batch after batch."""


class EpochSampler:
    """Batches of row indices for one of `world_size` processes.

    The rows of epoch e are drawn from (seed, e) alone: a permutation of all rows, or what `order` draws. Its
    b-th batch is the b-th run of `batch_size` rows, cut into `world_size` contiguous slices of near-equal
    length, one a rank: the slices of all ranks, in rank order, are the batch of a single process.

    The last, smaller batch is dropped where `drop_last` says so, and always where it has fewer rows than
    max(world_size, 2): each rank needs a row, and one row alone has nothing to contrast with.

    Raises ValueError for a batch size below max(world_size, 2), a rank outside the world, and too few rows
    for one batch.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        order: Order | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} outside 0..{world_size - 1}")
        least = max(world_size, 2)
        if batch_size < least:
            raise ValueError(f"batch_size {batch_size} below {least}")
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.rank, self.world_size, self.order = rank, world_size, order
        whole, rest = divmod(rows, batch_size)
        self.steps_per_epoch = whole + (rest >= least and not drop_last)
        if self.steps_per_epoch == 0:
            raise ValueError(f"{rows} rows make no batch of {batch_size}")

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Tensor]:
        """This rank's slice (int64) of every batch of an epoch, from `start_step` on."""
        rows = self._rows(epoch)
        for step in range(start_step, self.steps_per_epoch):
            batch = rows[step * self.batch_size : (step + 1) * self.batch_size]
            yield torch.tensor_split(batch, self.world_size)[self.rank]

    def _rows(self, epoch: int) -> Tensor:
        # A seed of its own for every (seed, epoch); a sum would repeat epochs between neighbouring seeds.
        seeds = np.random.SeedSequence([self.seed, epoch])
        if self.order is not None:
            return torch.from_numpy(self.order(np.random.default_rng(seeds)))
        mixed = seeds.generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(mixed >> np.uint64(1)))
        return torch.randperm(self.rows, generator=generator)
