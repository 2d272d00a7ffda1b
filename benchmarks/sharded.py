"""Exact nearest neighbours over Ray workers: the search itself, one index beside shards, and the merging.

    python benchmarks/sharded.py [--rows 400000] [--queries 1000] [--dim 128] [--k 50]

One thread a process. `search` is `retrieve` in blocks, in this process, in pairs of row and query a second.
`index` is a ShardedIndex of 1 and 2 workers: seconds to start and read, and to search; `worker s` are the
processor seconds of the busiest worker, which do not grow on a busy machine. `merge` is what the caller does
with the answers of many shards. The exit code is 1 where two indexes find different neighbours.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# Before faiss and its worker processes read it.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import torch
from losses_clock import in_turns, typical

from mlcl.evaluation import Neighbours
from mlcl.evaluation.merge import merge, retrieve_in_blocks
from mlcl.service.runs.ray_session import ray_session
from mlcl.service.shard import BLOCK
from mlcl.service.sharded import ShardedIndex
from mlcl.service.stored_rows import StoredRows

WORKERS = (1, 2)
SHARDS = (2, 8, 64, 512)
MERGED_QUERIES = 256


def main() -> int:
    a = arguments()
    torch.set_num_threads(1)
    store, queries = scene(a.rows, a.queries, a.dim)
    print(f"{a.rows:,} x {a.dim} unit rows, {a.queries:,} queries, k {a.k}, blocks of {BLOCK:,}\n")
    whole = search(store, queries, a.k, a.seconds)
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        agree = [index(workers, Path(folder), store, queries, a.k, whole) for workers in WORKERS]
    print("\n| shards | merge us a query | bytes a query |\n|---|---|---|")
    for shards in SHARDS:
        merging(shards, a.k, a.seconds)
    return 0 if all(agree) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3.0, help="of processor time a figure, at least")
    return parser.parse_args()


def scene(rows: int, queries: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of unit length around 300 centres."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(300, dim, generator=generator)
    label = torch.randint(0, 300, (rows + queries,), generator=generator)
    points = centre[label] + 1.2 * torch.randn(rows + queries, dim, generator=generator)
    return torch.nn.functional.normalize(points).split([rows, queries])


def search(store: torch.Tensor, queries: torch.Tensor, k: int, seconds: float) -> Neighbours:
    def work() -> Neighbours:
        return retrieve_in_blocks(store.split(BLOCK), queries, k)

    def products() -> object:
        return [(queries @ block.T).sum() for block in store.split(BLOCK)]

    times, found = in_turns({"search": work, "products": products}, seconds, {})
    took, limit = typical(times["search"]).median, typical(times["products"]).median
    pairs = len(store) * len(queries)
    print(f"search: {took:.2f} s, {pairs / took / 1e6:.0f} million pairs/s a core", end="")
    print(f"; the matrix product alone {limit:.2f} s, {pairs / limit / 1e6:.0f} million\n")
    print("| workers | start s | search s | worker s | equal |\n|---|---|---|---|---|")
    return found["search"]


def index(
    workers: int, folder: Path, store: torch.Tensor, queries: torch.Tensor, k: int, whole: Neighbours
) -> bool:
    """A row of the table; whether the index found what one search of all rows found."""
    file = folder / "embeddings.parquet"
    if not file.exists():
        values = pa.FixedSizeListArray.from_arrays(pa.array(store.numpy().ravel()), store.shape[1])
        pq.write_table(pa.table({"embedding": values}), file, row_group_size=BLOCK)
    with ray_session(folder, cpus=workers):
        began = time.perf_counter()
        with ShardedIndex([StoredRows.of(file)], workers) as index:
            started = time.perf_counter()
            before = processor_seconds(index)
            found = index.search(queries, k)
            ended = time.perf_counter()
            busiest = max(np.subtract(processor_seconds(index), before))
    equal = torch.equal(found.index, whole.index) and torch.equal(found.distance, whole.distance)
    print(
        f"| {workers} | {started - began:.1f} | {ended - started:.2f} | {busiest:.2f} | {equal} |", flush=True
    )
    return equal


def processor_seconds(index: ShardedIndex) -> list[float]:
    clock: Callable[[object], float] = lambda _: time.process_time()  # noqa: E731
    return ray.get([worker.__ray_call__.remote(clock) for worker in index._shards])


def merging(shards: int, k: int, seconds: float) -> None:
    generator = torch.Generator().manual_seed(0)
    found = [
        Neighbours(
            torch.rand(MERGED_QUERIES, k, generator=generator).sort(1).values,
            torch.arange(first, first + k).expand(MERGED_QUERIES, -1),
        )
        for first in range(0, shards * k, k)
    ]
    times, _ = in_turns({"merge": lambda: merge(found, k)}, seconds, {})
    each = typical(times["merge"]).median / MERGED_QUERIES
    sent = found[0].distance.element_size() + found[0].index.element_size()
    print(f"| {shards} | {each * 1e6:.0f} | {shards * k * sent:,} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
