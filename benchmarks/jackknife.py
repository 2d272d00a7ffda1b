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
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=50)
    a = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(a.rows, a.labels, generator=generator)
    several = LabelRows.from_dense(torch.rand(a.rows, a.labels, generator=generator) < 2 / a.labels)
    targets: dict[Task, Targets] = {
        "single": torch.randint(0, a.labels, (a.rows,), generator=generator),
        "multi_label": several,
    }
    block_N = blocks_of_groups(np.arange(a.rows))
    rest = torch.from_numpy(np.flatnonzero(block_N != 0))
    print(f"{a.rows:,} rows, {a.labels} labels, {BLOCKS} blocks\n{'metrics':26} {'ours s':>7} {'ratio':>6}")
    for task, names in METRICS.items():
        every = targets[task]
        left = every.take(rest) if isinstance(every, LabelRows) else every[rest]
        for only in [[name] for name in names] + [list(names[:3])]:

            def ours(only: list[str] = only, task: Task = task, every: Targets = every) -> object:
                return values_without_blocks(task, p, every, block_N, only=only)

            def peer(only: list[str] = only, task: Task = task, left: Targets = left) -> object:
                return [evaluate(task, p[rest], left, only=only) for _ in range(PEER_BLOCKS)]

            own, other = seconds(ours), seconds(peer, 1) / PEER_BLOCKS * BLOCKS
            print(f"{', '.join(only):26} {own:7.3f} {other / own:6.1f}", flush=True)


if __name__ == "__main__":
    main()
