"""The B x B pairs in tiles, so that the engine never holds more than one of them at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch

TILE = 256
"""Rows and columns of a tile on the host: in float32 a quarter of a megabyte, which a core's cache holds."""
DEVICE_TILE = 4096
"""Most rows and columns of a tile on an accelerator, which waits for launches between small tiles."""
LEAST_DEVICE_TILE = 512
SHARE = 1 / 8
"""Share of an accelerator's free memory that a loss may fill with its buffers."""
BUFFERS = 6 * 4
"""Bytes of a pair in those buffers, in float32."""
KEPT = 1 << 22
"""Pairs up to which a number about each is kept from one pass over them to the next."""


def is_host(device: torch.device) -> bool:
    """Whether values on the device are read without waiting for it."""
    return device.type == "cpu"


def tile_size(device: torch.device) -> int:
    """Rows and columns of a tile on a device: on a GPU DEVICE_TILE, halved until its buffers fit.

    They fit the memory that is free when this process first asks, which is in its first step, after the
    encoder's forward. Where PyTorch must give the same bits every time, the free memory does not matter.
    """
    if device.type == "cpu":
        return TILE
    fixed = torch.are_deterministic_algorithms_enabled()
    return DEVICE_TILE if fixed else min(DEVICE_TILE, _size_by_memory(device))


@functools.cache
def _size_by_memory(device: torch.device) -> int:
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return largest_tile(torch.cuda.mem_get_info(device)[0] + unused)


def largest_tile(free: int) -> int:
    """The largest power of two as tile size whose buffers take at most SHARE of `free` bytes."""
    pairs = max(SHARE * free / BUFFERS, LEAST_DEVICE_TILE**2)
    return int(2 ** math.floor(math.log2(pairs) / 2))


def tile_entries(total: int, device: torch.device) -> int:
    """Entries of the largest tile of a batch of `total` rows."""
    return int(min(tile_size(device), total) ** 2)


def tiles(
    device: torch.device, own: int, rows: int, prototypes: int = 0
) -> Iterator[tuple[slice, slice, bool]]:
    """Yields rows, columns and `mirrored` of tiles that pair `own` rows with all rows and prototypes.

    The own rows are the first, the prototypes come after all rows. Of two tiles that are mirror images within
    the own rows only one is given, with `mirrored` true, for both. A tile on the diagonal has equal rows and
    columns. No tile holds both own and other columns, or both rows and prototypes.
    """
    size = tile_size(device)
    for top in range(0, own, size):
        anchors = slice(top, min(top + size, own))
        for first, last in ((top, own), (own, rows), (rows, rows + prototypes)):
            for left in range(first, last, size):
                yield anchors, slice(left, min(left + size, last)), top < left < own
