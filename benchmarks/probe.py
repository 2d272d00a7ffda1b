"""Measures the CPU time of the linear probe and forecasts the time for a whole data set.

    python benchmarks/probe.py [--labels 8692] [--dims 768 4096] [--rows 47719] [--share 100] [--steps 2]

Trains the default grid on a share of the rows, for a few steps of one batch, on one CPU thread or on the GPU
if there is one. The forecast is for all epochs over all rows: with every setting trained to its end, and
without the settings that are stopped early. Memory is that of weights, gradients and AdamW's two moments.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import pairwise

import torch

from mlcl.config import ProbeConfig
from mlcl.evaluation import ProbeGrid, ProbeRows
from mlcl.evaluation.probe_training import RUNGS, GridTraining
from mlcl.labels import LabelRows

LABELS_A_ROW = 16


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, default=8_692)
    parser.add_argument("--dims", type=int, nargs="+", default=[768, 4_096])
    parser.add_argument("--rows", type=int, default=47_719, help="of the whole data set")
    parser.add_argument("--share", type=int, default=100, help="one of so many rows is trained on")
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, config = args.rows // args.share, ProbeConfig()
    settings = len(config.lr) * len(config.weight_decay)
    print(f"{rows:,} of {args.rows:,} rows, {args.labels:,} labels, {settings} settings, {device.type}\n")
    print("| D | s a step | GiB | forecast h, all settings | forecast h, the worse stopped |")
    print("|---|---|---|---|---|")
    for dim in args.dims:
        step_seconds = seconds_of_a_step(rows, args.labels, dim, args.steps, config, device)
        hours = step_seconds * math.ceil(args.rows / config.batch_size) * config.epochs / 3600
        memory_gib = settings * args.labels * dim * 4 * 4 / 2**30
        print(
            f"| {dim:,} | {step_seconds:.2f} | {memory_gib:.1f} | "
            f"{hours:.1f} | {hours * share_trained():.1f} |"
        )


def seconds_of_a_step(
    rows: int, labels: int, dim: int, steps: int, config: ProbeConfig, device: torch.device
) -> float:
    """Returns the seconds of one step of all settings (elapsed on a GPU, else CPU time) for a whole batch."""
    generator = torch.Generator().manual_seed(0)
    label_N = torch.randint(labels, (rows * LABELS_A_ROW,), generator=generator)
    lists = [sorted(set(row)) for row in label_N.reshape(rows, -1).tolist()]
    data = ProbeRows(
        torch.randn(rows, dim, generator=generator), LabelRows.from_lists(lists, labels), device=device
    )
    batch = min(rows, config.batch_size)
    epochs = math.ceil(steps / math.ceil(rows / batch))
    grid = ProbeGrid(config.lr, config.weight_decay, epochs, batch, 0)
    training = GridTraining(data, data.targets, torch.arange(rows), grid, labels, lambda *_: 0.0)
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    start = clock()
    training.layers()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (clock() - start) / (epochs * math.ceil(rows / batch)) * config.batch_size / batch


def share_trained() -> float:
    """Returns the share of all settings' steps that are trained if the worse half is stopped at each rung."""
    edges = [0.0, *RUNGS, 1.0]
    return sum((high - low) / 2**number for number, (low, high) in enumerate(pairwise(edges)))


if __name__ == "__main__":
    main()
