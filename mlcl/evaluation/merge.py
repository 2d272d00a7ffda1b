"""Nearest neighbours of a datastore in pieces: to the last bit, ties included, those of one search of it all.

A distance depends on its row and its query alone, and rows are ordered by distance and then number. So the k
nearest of all rows are among the k nearest of each piece.

Shapes: M queries, D embedding, N rows of a block, K neighbours, F found in all pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.retrieval import Neighbours, retrieve
from mlcl.evaluation.tasks import array


def merge(found: Sequence[Neighbours], k_max: int) -> Neighbours:
    """The k_max nearest of what was found in disjoint pieces, whose `index` counts the rows of all.

    The pieces may come in any order, with K of their own. With fewer than k_max in all, K is smaller.
    Raises ValueError for no pieces, for different numbers of queries, and for k_max < 1.
    """
    if not found or k_max < 1:
        raise ValueError(f"nothing to merge: {len(found)} pieces, k_max {k_max}")
    distance_MF = np.concatenate([array(each.distance) for each in found], axis=1)
    index_MF = np.concatenate([array(each.index) for each in found], axis=1)
    order_MK = np.lexsort((index_MF, distance_MF), axis=-1)[:, :k_max]
    return Neighbours(
        torch.from_numpy(np.take_along_axis(distance_MF, order_MK, 1)),
        torch.from_numpy(np.take_along_axis(index_MF, order_MK, 1)),
    )


def retrieve_in_blocks(
    blocks: Iterable[Tensor], queries_MD: Tensor, k_max: int, first: int = 0
) -> Neighbours:
    """`retrieve` of a datastore that comes in blocks (N, D) of consecutive rows, the first of number `first`.

    faiss copies what it searches: here one block at a time. A block may be empty. With fewer than k_max rows
    in all, K is smaller. Raises ValueError where `retrieve` does.
    """
    nearest: list[Neighbours] = []
    for block_ND in blocks:
        if len(block_ND):
            found = retrieve(block_ND, queries_MD, min(k_max, len(block_ND)))
            nearest = [merge([*nearest, Neighbours(found.distance, found.index + first)], k_max)]
        first += len(block_ND)
    if not nearest:
        raise ValueError(f"no neighbours: 0 rows to choose from, k_max {k_max}")
    return nearest[0]
