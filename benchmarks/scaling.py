"""Measures the figures of docs/scaling.md: the gathering of a step over processes, and the cost of rows.

    python benchmarks/scaling.py [--rows 4096] [--dim 128] [--worlds 1 2 4 8] [--data-rows 1000000]

`gather` runs the losses over gloo on this machine, with one thread per process. It prints the CPU
milliseconds of a process, the part of them that is spent in the collectives, and the bytes that the
collectives bring to the process for each row of the batch. `rows` prints bytes and CPU time of the parts of a
data set that a process holds, and of the file of its embeddings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from losses_scenes import Case, scene

from mlcl.labels import LabelRows
from mlcl.losses import build_loss
from mlcl.samplers import EpochSampler
from mlcl.training.run_files import ROW_GROUP, read_embeddings

LOSSES = (("supcon", "class", 8_692), ("mulsupcon", "multi_label", 8_692), ("simdis", "multi_label", 8_692))
REPEATS = 5
LABELS_A_ROW = 16


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4_096)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--data-rows", type=int, default=1_000_000)
    args = parser.parse_args()
    print(f"gather: B={args.rows:,}, D={args.dim}, forward and backward\n")
    print("| loss | processes | own rows | ms a process | of it gathering | bytes a row |")
    print("|---|---|---|---|---|---|")
    for loss, kind, labels in LOSSES:
        for world in args.worlds:
            step_seconds, gather_seconds, received_bytes = over(
                world, Case(loss, kind, args.rows, labels, args.dim)
            )
            cells = [
                f"`{loss}`",
                world,
                f"{args.rows // world:,}",
                f"{step_seconds * 1e3:.0f}",
                f"{gather_seconds * 1e3:.0f}",
            ]
            print(f"| {' | '.join(map(str, cells))} | {received_bytes / args.rows:.0f} |", flush=True)
    print(f"\nrows: {args.data_rows:,}\n\n| what | bytes a row | us a row |\n|---|---|---|")
    for name, (size, seconds) in rows_of(args.data_rows, args.dim).items():
        print(f"| {name} | {size / args.data_rows:.0f} | {seconds / args.data_rows * 1e6:.2f} |")
    return 0


def over(world: int, case: Case) -> tuple[float, float, float]:
    """Returns the CPU seconds of a step in a process, those spent in collectives, and the bytes received.

    Each is the median over steps, then the largest over processes.
    """
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        mp.spawn(rank_of, (world, folder, case), nprocs=world)
        steps = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(world)]
    step_seconds, gather_seconds, received_bytes = np.median(steps, axis=1).max(axis=0)
    return step_seconds, gather_seconds, received_bytes


def rank_of(rank: int, world: int, folder: str, case: Case) -> None:
    torch.set_num_threads(1)
    file = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", file, timedelta(minutes=30), world_size=world, rank=rank)
    count = counted(world)
    inputs = scene(case)
    row_numbers = torch.arange(case.rows).tensor_split(world)[rank]
    z_ND = inputs.embeddings.detach()[row_numbers].requires_grad_()
    assert inputs.labels is not None
    labels = (
        inputs.labels.take(row_numbers)
        if isinstance(inputs.labels, LabelRows)
        else inputs.labels[row_numbers]
    )
    loss = build_loss(case.loss, gather=True, engine="tiled")
    steps = []
    for _ in range(REPEATS):
        z_ND.grad = None
        count |= {"seconds": 0.0, "bytes": 0.0}
        start = time.process_time()
        loss(z_ND, labels, inputs.sample_ids[row_numbers]).backward()
        steps.append([time.process_time() - start, count["seconds"], count["bytes"]])
    torch.save(steps[1:], Path(folder) / f"{rank}.pt")  # the first step warms up
    dist.destroy_process_group()


def counted(world: int) -> dict[str, float]:
    """Replaces the collectives by ones that count seconds and received bytes, and returns the counts.

    A gather receives the rows of the other processes; a ring receives almost twice the size of the value.
    """
    count = {"seconds": 0.0, "bytes": 0.0}

    def counting(collective: Callable[..., Any], size: Callable[..., float]) -> Callable[..., Any]:
        def counted(*tensors: Any, **options: Any) -> Any:
            count["bytes"] += size(*tensors)
            start = time.process_time()
            answer = collective(*tensors, **options)
            count["seconds"] += time.process_time() - start
            return answer

        return counted

    dist.all_gather = counting(dist.all_gather, lambda _, tensor: (world - 1) * tensor.nbytes)
    dist.all_reduce = counting(dist.all_reduce, lambda value: 2 * (world - 1) / world * value.nbytes)
    return count


def rows_of(rows: int, dim: int) -> dict[str, tuple[float, float]]:
    """Returns the bytes and CPU seconds of all rows, by their purpose."""
    column = pa.array([f"sample-{row:012d}" for row in range(rows)])
    labels = [list(range(LABELS_A_ROW))] * 1000
    label_rows = LabelRows.from_lists(labels, LABELS_A_ROW)
    sampler = EpochSampler(rows, 1024, seed=0)
    costs = {
        "ids, as Python strings": measured(column.to_pylist),
        f"labels, {LABELS_A_ROW} a row": (
            rows / 1000 * (label_rows.columns.nbytes + label_rows.offsets.nbytes),
            0.0,
        ),
        "an epoch's order": (8.0 * rows, measured(lambda: next(sampler.batches(0)))[1]),
    }
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        file = Path(folder) / "embeddings.parquet"
        values = torch.nn.functional.normalize(torch.randn(rows, dim)).numpy()
        embeddings = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), dim)
        table = pa.table({"id": column, "split": pa.array(["train"] * rows), "embedding": embeddings})
        _, write_seconds = measured(
            lambda: pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP)
        )
        size = float(file.stat().st_size)
        _, read_seconds = measured(lambda: read_embeddings(file))
    return costs | {"embeddings, written": (size, write_seconds), "embeddings, read": (size, read_seconds)}


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the bytes of Python objects that live as long as the result of `work`, and its CPU seconds.

    The seconds are measured in a call without `tracemalloc`.
    """
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    tracemalloc.start()
    result = work()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return float(size), seconds


if __name__ == "__main__":
    sys.exit(main())
