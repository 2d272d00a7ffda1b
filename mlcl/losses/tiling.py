"""Divides the B x B pairs into tiles, so that the engine holds only one tile at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch

TILE = 256
"""The number of rows and of columns of a tile on the host: in float32 it fits a core's cache (256 KiB)."""
DEVICE_TILE = 4096
"""The largest number of rows and of columns of a tile on an accelerator, where small tiles are slow."""
LEAST_DEVICE_TILE = 512
SHARE = 1 / 8
"""The fraction of an accelerator's free memory that the buffers of a loss may take."""
KEPT_TILES = 8
"""The number of an accelerator's tiles for which a value of each pair is kept from one pass to the next."""
BUFFERS = (6 + KEPT_TILES) * 4
"""The number of bytes in all buffers for each pair of a tile, in float32."""
KEPT = 1 << 22
"""The largest number of pairs for which a value is kept on the host; an accelerator may keep more."""


def is_host(device: torch.device) -> bool:
    """Whether the host can read values on the device without waiting for it."""
    return device.type == "cpu"


def tile_size(device: torch.device) -> int:
    """Returns the number of rows and of columns of a tile.

    On the host it is TILE, on a GPU DEVICE_TILE, halved until the tile's buffers take at most SHARE of the
    memory that is free at the first call in this process, which is in the first training step, after the
    encoder's forward. With PyTorch's deterministic algorithms, the free memory is ignored.
    """
    if device.type == "cpu":
        return TILE
    fixed = torch.are_deterministic_algorithms_enabled()
    return DEVICE_TILE if fixed else min(DEVICE_TILE, _size_by_memory(device))


@functools.cache
def _size_by_memory(device: torch.device) -> int:
    unused_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return largest_tile(torch.cuda.mem_get_info(device)[0] + unused_bytes)


def largest_tile(free: int) -> int:
    """Returns the largest power of two, LEAST_DEVICE_TILE or more, whose buffers take SHARE of `free`."""
    pairs = max(SHARE * free / BUFFERS, LEAST_DEVICE_TILE**2)
    return int(2 ** math.floor(math.log2(pairs) / 2))


def tile_entries(total: int, device: torch.device) -> int:
    """Returns the number of entries of the largest tile of a batch of `total` rows."""
    return int(min(tile_size(device), total) ** 2)


def kept_pairs(device: torch.device) -> int:
    """Returns the largest number of pairs for which a value is kept from one pass to the next."""
    return KEPT if is_host(device) else max(KEPT, KEPT_TILES * tile_size(device) ** 2)


def tiles(
    device: torch.device, n_own: int, rows: int, prototypes: int = 0, n_queued: int = 0
) -> Iterator[tuple[slice, slice, bool]]:
    """Yields rows, columns and `mirrored` of tiles that pair `n_own` rows with all rows and prototypes.

    The own rows are the first, a queue's `n_queued` rows the last, the prototypes come after all rows. Of two
    tiles of own rows that are mirror images, only one is yielded, with `mirrored` true; it stands for both. A
    tile on the diagonal has equal rows and columns. The columns of a tile are either own rows, or other rows,
    or a queue's, or prototypes.
    """
    size, batch = tile_size(device), rows - n_queued
    for top in range(0, n_own, size):
        anchors = slice(top, min(top + size, n_own))
        for first, last in ((top, n_own), (n_own, batch), (batch, rows), (rows, rows + prototypes)):
            for left in range(first, last, size):
                yield anchors, slice(left, min(left + size, last)), top < left < n_own
