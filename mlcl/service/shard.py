"""A worker's part of a datastore, and the search in it.

Shapes: N rows of the worker, n rows of a part, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from mlcl.evaluation import Neighbours
from mlcl.evaluation.merge import retrieve_in_blocks
from mlcl.evaluation.tasks import array
from mlcl.service.stored_rows import StoredRows

BLOCK = 131_072
"""Rows that are searched at once: faiss copies them, and where rounding matters they become float64."""

Part = Tensor | StoredRows
"""Rows (n, D) at hand, or in a file."""


class Shard:
    """The rows from number `first` on, of which `parts` are those in files and references to those at hand.

    They are read when first needed, so that what goes wrong there reaches the caller as it is.
    """

    def __init__(self, first: int, parts: Sequence[Any]) -> None:
        self._first, self._parts = first, parts

    @cached_property
    def _rows(self) -> Tensor:
        parts = [part if isinstance(part, StoredRows) else ray.get(part) for part in self._parts]
        rows_ND = np.empty((sum(map(len, parts)), dim_of(parts[0])), np.float32)
        at = 0
        for part in parts:
            here_ND = rows_ND[at : at + len(part)]
            if isinstance(part, StoredRows):
                part.read_into(here_ND)
            else:
                here_ND[:] = part
            at += len(part)
        return torch.from_numpy(rows_ND)

    def load(self) -> int:
        """How many rows there are, once they are in memory."""
        return len(self._rows)

    def search(self, queries: Any, k_max: int) -> Neighbours:
        """The nearest of these rows, numbered as in the whole datastore."""
        queries_MD = torch.from_numpy(queries.copy())  # Ray's own may not be written to, which torch minds
        return retrieve_in_blocks(torch.split(self._rows, BLOCK), queries_MD, k_max, self._first)


def shares(parts: Sequence[Part], workers: int) -> Iterator[tuple[int, list[Part]]]:
    """For each worker the number of its first row, and its rows: runs that differ by one row at most."""
    rows = sum(map(len, parts))
    for worker in range(workers):
        first, stop = rows * worker // workers, rows * (worker + 1) // workers
        own, at = [], 0
        for part in parts:
            after = at + len(part)
            if max(at, first) < min(after, stop):
                own.append(part[max(first - at, 0) : stop - at])
            at = after
        yield first, own


def sent(part: Part) -> Any:
    """A part as it travels: rows at hand through the object store, from where a new worker has them again."""
    return part if isinstance(part, StoredRows) else ray.put(array(part))


def dim_of(rows: Any) -> int:
    """D."""
    return int(rows.dim if isinstance(rows, StoredRows) else rows.shape[1])
