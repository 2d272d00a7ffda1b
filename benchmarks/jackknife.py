"""Measures metrics without each block of test rows, beside evaluating the remaining rows for each block.

    python benchmarks/jackknife.py [--rows 100000] [--labels 50]

Prints seconds (best of repeats) and ratios. The peer evaluates a few blocks, and its time is scaled up to
all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from mlcl.evaluation import Targets, Task, evaluate
from mlcl.evaluation.jackknife import BLOCKS, blocks_of_groups, values_without_blocks
from mlcl.labels import LabelRows

PEER_BLOCKS = 3
METRICS: dict[Task, tuple[str, ...]] = {
    "single": ("accuracy", "macro_f1"),
    "multi_label": ("micro_f1", "macro_f1", "map", "macro_auc"),
}


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(args.rows, args.labels, generator=generator)
    label_rows = LabelRows.from_dense(
        torch.rand(args.rows, args.labels, generator=generator) < 2 / args.labels
    )
    targets: dict[Task, Targets] = {
        "single": torch.randint(0, args.labels, (args.rows,), generator=generator),
        "multi_label": label_rows,
    }
    block_N = blocks_of_groups(np.arange(args.rows))
    rest_rows = torch.from_numpy(np.flatnonzero(block_N != 0))
    print(
        f"{args.rows:,} rows, {args.labels} labels, {BLOCKS} blocks\n"
        f"{'metrics':26} {'ours s':>7} {'ratio':>6}"
    )
    for task, names in METRICS.items():
        all_targets = targets[task]
        rest_targets = (
            all_targets.take(rest_rows) if isinstance(all_targets, LabelRows) else all_targets[rest_rows]
        )
        for metrics in [[name] for name in names] + [list(names[:3])]:

            def ours(
                metrics: list[str] = metrics, task: Task = task, all_targets: Targets = all_targets
            ) -> object:
                return values_without_blocks(task, p, all_targets, block_N, only=metrics)

            def peer(
                metrics: list[str] = metrics, task: Task = task, rest_targets: Targets = rest_targets
            ) -> object:
                return [evaluate(task, p[rest_rows], rest_targets, only=metrics) for _ in range(PEER_BLOCKS)]

            our_seconds, peer_seconds = seconds(ours), seconds(peer, 1) / PEER_BLOCKS * BLOCKS
            print(f"{', '.join(metrics):26} {our_seconds:7.3f} {peer_seconds / our_seconds:6.1f}", flush=True)


if __name__ == "__main__":
    main()
