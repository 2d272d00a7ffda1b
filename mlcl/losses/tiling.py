"""The B x B pairs in tiles, so that none of the engine's work needs more than one of them at a time."""

from __future__ import annotations

from collections.abc import Iterator

TILE = 512
"""Rows and columns of a tile: in float32 it fills a megabyte, which a core's cache holds."""


def entries(total: int) -> int:
    """Entries of the largest tile of a batch of `total` rows."""
    return int(min(TILE, total) ** 2)


def tiles(own: int, rows: int, prototypes: int = 0) -> Iterator[tuple[slice, slice, bool]]:
    """Rows, columns and `mirrored` of tiles that cover the pairs of `own` rows with all rows and prototypes.

    The own rows are the first, the prototypes come after all rows. Of two tiles that lie mirrored within the
    own rows only one is given, with `mirrored` true: it stands for both. A tile on the diagonal has equal
    rows and columns. No tile holds both own and other columns, or both rows and prototypes.
    """
    for top in range(0, own, TILE):
        anchors = slice(top, min(top + TILE, own))
        for first, last in ((top, own), (own, rows), (rows, rows + prototypes)):
            for left in range(first, last, TILE):
                yield anchors, slice(left, min(left + TILE, last)), top < left < own
