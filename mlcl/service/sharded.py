"""Exact nearest neighbours of a datastore that is shared out over Ray workers.

Shapes: n rows of a part, M queries, D embedding, K neighbours.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import Tensor

from mlcl.errors import UserError
from mlcl.evaluation import Neighbours
from mlcl.evaluation.merge import merge
from mlcl.evaluation.tasks import array
from mlcl.service.shard import BLOCK, Part, Shard, dim_of, sent, shares

AHEAD = 2
"""Batches of queries under way, so that no worker waits for the merging."""
MAX_RESTARTS = 3
"""Times that a lost worker is started again, reads its rows and repeats what it was asked."""
PATIENCE = 600.0
"""Seconds in which a busy cluster must have room for all workers."""

logger = logging.getLogger(__name__)


class ShardedIndex:
    """A datastore's rows in the memory of `workers` actors, a contiguous run in each, as long as the context.

    `parts` are float32 (n, D), or rows of files, which only their worker reads; row numbers go on from part
    to part. What is found is to the last bit what `retrieve` finds in all rows, whatever the number of
    workers, and also where one of them dies. Each worker has `cpus`; they are spread over the nodes.

    Raises ValueError for parts without rows or of different D. Entering raises UserError where the cluster
    has not the CPUs or the memory, and where a file cannot be read.

        parts = [StoredRows.of(file) for file in files]
        with ray_session(home), ShardedIndex(parts, workers=8) as index:
            neighbours = index.search(queries, k_max=50)
    """

    def __init__(self, parts: Sequence[Part], workers: int, *, cpus: float = 1, batch: int = 1024) -> None:
        dims, self.rows = sorted({dim_of(part) for part in parts}), sum(map(len, parts))
        if not self.rows or len(dims) != 1 or min(workers, batch) < 1:
            found = f"{self.rows} rows of {dims} values, {workers} workers, {batch} queries at once"
            raise ValueError(f"no index can be made of {found}")
        self.dim, self.workers = dims[0], min(workers, self.rows)
        self._parts, self._cpus, self._batch = parts, cpus, batch
        self._sent: list[tuple[int, list[Any]]] = []
        self._shards: list[Any] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._forget)
            room = self._reserve(stack)
            self._sent = [(first, [*map(sent, parts)]) for first, parts in shares(self._parts, self.workers)]
            self._shards = [self._start(room, number) for number in range(self.workers)]
            _answers([shard.load.remote() for shard in self._shards])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def search(self, queries_MD: Tensor, k_max: int) -> Neighbours:
        """The K = k_max nearest rows of every query, as `retrieve` gives them.

        Raises ValueError for queries of another D, values that are not finite and k_max < 1; RuntimeError
        where a worker died too often.
        """
        found = list(self.stream(torch.split(queries_MD, self._batch), k_max))
        return Neighbours(
            torch.cat([each.distance for each in found]), torch.cat([each.index for each in found])
        )

    def stream(self, batches: Iterable[Tensor], k_max: int) -> Iterator[Neighbours]:
        """The same for each batch of queries in turn, of which only a few are held at once."""
        if k_max > self.rows:
            logger.warning("only %d neighbours instead of %d: the datastore has no more", self.rows, k_max)
        waiting: deque[list[Any]] = deque()
        for queries_MD in batches:
            waiting.append(self._ask(queries_MD, k_max))
            if len(waiting) == AHEAD:
                yield merge(_answers(waiting.popleft()), k_max)
        while waiting:
            yield merge(_answers(waiting.popleft()), k_max)

    def _ask(self, queries_MD: Tensor, k_max: int) -> list[Any]:
        if not self._shards:
            raise RuntimeError("a ShardedIndex is searched inside of its `with`")
        if dim_of(queries_MD) != self.dim or k_max < 1:
            raise ValueError(f"queries {tuple(queries_MD.shape)}, rows of {self.dim} values, k_max {k_max}")
        queries = ray.put(array(queries_MD))
        return [shard.search.remote(queries, k_max) for shard in self._shards]

    @property
    def _needs(self) -> dict[str, float]:
        """Of each worker: its rows, and of a block faiss' copy and float64 values."""
        rows = math.ceil(self.rows / self.workers)
        return {"CPU": self._cpus, "memory": 4 * self.dim * (rows + 4 * min(rows, BLOCK))}

    def _reserve(self, stack: ExitStack) -> Any:
        """Room for all workers at once: with room for a few they would wait for ever."""
        total = ray.cluster_resources()
        if any(total.get(kind, 0) < self.workers * share for kind, share in self._needs.items()):
            raise self._no_room("the cluster is too small for the index", total)
        group = placement_group([self._needs] * self.workers, strategy="SPREAD")
        stack.callback(remove_placement_group, group)
        if not group.wait(PATIENCE):
            raise self._no_room("the cluster has no room for the index", ray.available_resources())
        return group

    def _no_room(self, problem: str, have: Mapping[str, float]) -> UserError:
        found = f"{self.workers} workers with {_told(self._needs)} each"
        return UserError(problem, key="workers", found=found, allowed=f"{_told(have)} in all")

    def _start(self, room: Any, number: int) -> Any:
        return (
            ray.remote(Shard)
            .options(
                num_cpus=self._cpus,
                memory=self._needs["memory"],
                max_restarts=MAX_RESTARTS,
                max_task_retries=-1,
                scheduling_strategy=PlacementGroupSchedulingStrategy(room, number),
            )
            .remote(*self._sent[number])
        )

    def _forget(self) -> None:
        """What was sent is held until here: a restarted worker needs it."""
        for shard in self._shards:
            ray.kill(shard)
        self._shards, self._sent = [], []


def _answers(asked: Sequence[Any]) -> list[Any]:
    try:
        answers: list[Any] = ray.get(asked)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise RuntimeError(
            f"a worker of the index died more than {MAX_RESTARTS} times; does its part fit in memory?"
        ) from error
    return answers


def _told(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPU and {resources.get('memory', 0) / 2**30:.3g} GiB"
