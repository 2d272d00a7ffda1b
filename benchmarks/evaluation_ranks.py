"""Measures the memory of each rank in an evaluation, and the time of the neighbour search, beside faiss.

    python benchmarks/evaluation_ranks.py [--rows 1000000] [--queries 200] [--k 50] [--ranks 1 2 4]

Each rank is a process of one thread that holds its share of the training rows, as evaluation does. `peak` is
the growth of a rank's largest resident memory over its value before the rank drew its rows, which is mostly
libraries and the process group. It is printed after the search, and after the rank has written its part of
`embeddings.parquet`. The largest peak of all ranks is shown. `peer` is one process with all rows in a faiss
flat index, which keeps its own copy of them. The exit code is 1 if the neighbours depend on the number of
ranks.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

# The variable must be set before faiss is imported and before the ranks start.
os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import pyarrow as pa
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mlcl.training.context import Context
from mlcl.training.embeddings import RankRows, shares
from mlcl.training.run_files import write_part

MIB = 2**20
BLOCK = 10_000
"""The number of rows that share a seed, so that any share of the rows can be drawn alone."""
COLUMNS = {"searched": 0, "written": 0, "search": 1, "write": 1}
"""The columns of the printed table and their numbers of decimals."""


def main() -> int:
    args = arguments()
    row_mib = 4 * args.dim / MIB
    print(
        f"{args.rows:,} rows of {args.dim}, {args.rows * row_mib:.0f} MiB; "
        f"{args.queries} queries, k {args.k}\n"
    )
    print("| processes | MiB of own rows | peak, searched | peak, written | search s | write s |")
    print("|---|---|---|---|---|---|")
    neighbours = []
    for world in args.ranks:
        ranks = measured(rank_of, world, args)
        neighbours.append(ranks[0]["found"])
        maxima = {name: max(rank[name] for rank in ranks) for name in ranks[0] if name != "found"}
        print(row(world, args.rows / world * row_mib, maxima), flush=True)
    (peer,) = measured(peer_of, 1, args)
    print(row("peer", args.rows * row_mib, peer))
    equal = all(torch.equal(tensor, neighbours[0][i]) for pair in neighbours for i, tensor in enumerate(pair))
    print(f"\nthe ranks' neighbours are equal to the bit: {equal}")
    share = float((peer["found"][1] == neighbours[0][1]).double().mean())
    print(f"the peer's, of float32 distances, at the same place: {share:.4%}")
    return 0 if equal else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    return parser.parse_args()


def row(name: object, rows_mib: float, values: dict[str, float]) -> str:
    cells = [f"{values[key]:.{digits}f}" if key in values else "" for key, digits in COLUMNS.items()]
    return f"| {name} | {rows_mib:.0f} | {' | '.join(cells)} |"


def measured(work: Callable[..., None], world: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs `work` in `world` processes and returns the values that each process saves."""
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        mp.spawn(work, (world, folder, args), nprocs=world)
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(world)]


def rank_of(rank: int, world: int, folder: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    file = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", file, timedelta(minutes=30), world_size=world, rank=rank)
    context, queries_MD = Context.current("cpu"), points(range(args.rows, args.rows + args.queries), args.dim)
    RankRows(points(range(args.queries), args.dim), 0, Context(context.device)).retrieve(
        queries_MD, args.k, args.queries
    )
    start_mib = peak()
    row_range = shares(args.rows, world)[rank]
    rows = RankRows(points(row_range, args.dim), row_range.start, context)
    context.any(False)  # waits for every rank
    start = time.perf_counter()
    neighbours = rows.retrieve(queries_MD, args.k, args.rows)
    answer = {"search": time.perf_counter() - start, "searched": peak() - start_mib}
    start = time.perf_counter()
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(rows.values.numpy().ravel()), args.dim)
    write_part(Path(folder), [pa.table({"embedding": embeddings})], context)
    answer |= {"write": time.perf_counter() - start, "written": peak() - start_mib}
    torch.save(answer | {"found": (neighbours.distance, neighbours.index)}, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def peer_of(_rank: int, _world: int, folder: str, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    queries_MD = points(range(args.rows, args.rows + args.queries), args.dim)
    start_mib = peak()
    rows_ND = points(range(args.rows), args.dim).numpy()
    start = time.perf_counter()
    index = faiss.IndexFlatL2(args.dim)
    index.add(rows_ND)
    distance, indices = index.search(queries_MD.numpy(), args.k)
    answer = {"search": time.perf_counter() - start, "searched": peak() - start_mib}
    torch.save(answer | {"found": (torch.from_numpy(distance), torch.from_numpy(indices))}, f"{folder}/0.pt")


def points(numbers: range, dim: int) -> torch.Tensor:
    """Returns the rows with the given numbers: points of unit length around 300 centres."""
    centres = torch.randn(300, dim, generator=torch.Generator().manual_seed(0))
    rows = torch.empty(len(numbers), dim)
    for block in range(numbers.start // BLOCK, -(-numbers.stop // BLOCK)):
        generator = torch.Generator().manual_seed(1 + block)
        label = torch.randint(0, 300, (BLOCK,), generator=generator)
        block_points = centres[label] + 1.2 * torch.randn(BLOCK, dim, generator=generator)
        first, stop = max(numbers.start, block * BLOCK), min(numbers.stop, (block + 1) * BLOCK)
        part = block_points[first - block * BLOCK : stop - block * BLOCK]
        rows[first - numbers.start : stop - numbers.start] = torch.nn.functional.normalize(part)
    return rows


def peak() -> float:
    """Returns the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


if __name__ == "__main__":
    sys.exit(main())
