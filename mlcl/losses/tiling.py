"""The B x B pairs in tiles, so that none of the engine's work needs more than one of them at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

TILE = 256
"""Rows and columns of a tile: in float32 it fills a quarter of a megabyte, which a core's cache holds."""
DEVICE_TILE = 4096
"""The same on an accelerator, which small tiles would keep waiting for their launch."""
KEPT = 1 << 22
"""Pairs up to which a number about each is kept from one pass over them to the next."""


def edge(device: torch.device) -> int:
    """Rows and columns of a tile on a device."""
    return TILE if device.type == "cpu" else DEVICE_TILE


def entries(total: int, device: torch.device) -> int:
    """Entries of the largest tile of a batch of `total` rows."""
    return int(min(edge(device), total) ** 2)


def tiles(
    device: torch.device, own: int, rows: int, prototypes: int = 0
) -> Iterator[tuple[slice, slice, bool]]:
    """Rows, columns and `mirrored` of tiles that cover the pairs of `own` rows with all rows and prototypes.

    The own rows are the first, the prototypes come after all rows. Of two tiles that lie mirrored within the
    own rows only one is given, with `mirrored` true, for both. A tile on the diagonal has equal
    rows and columns. No tile holds both own and other columns, or both rows and prototypes.
    """
    size = edge(device)
    for top in range(0, own, size):
        anchors = slice(top, min(top + size, own))
        for first, last in ((top, own), (own, rows), (rows, rows + prototypes)):
            for left in range(first, last, size):
                yield anchors, slice(left, min(left + size, last)), top < left < own
