"""Measures the search over (k, lambda, tau) after training, beside one retrieval and scoring one by one.

    python benchmarks/posthoc.py [--rows 20000] [--queries 4000] [--classes 297]

Prints seconds (median of repeats, one thread) and ratios. The one-by-one peer scores a few settings, and its
time is scaled up to all of them, as the printed line says.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import faiss
import numpy as np
import torch

from mlcl.evaluation import QueryRows, Scoring, blend, evaluate, knn_probabilities, retrieve, search
from mlcl.labels import LabelRows

KS = (1, 2, 3, 5, 8, 10, 20, 30, 40, 50)
LAMBDAS = tuple(i / 49 for i in range(50))
TEMPERATURES = tuple(10 ** (-2 + 3 * i / 19) for i in range(20))
SETTINGS = len(KS) * len(LAMBDAS) * len(TEMPERATURES)
PEER_SETTINGS = 20


def seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def scene(rows: int, queries: int, dim: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, dim))
    label = rng.integers(0, classes, rows + queries)
    points = (centres[label] + 1.2 * rng.normal(size=(rows + queries, dim))).astype(np.float32)
    return torch.from_numpy(points[:rows]), torch.from_numpy(points[rows:]), torch.from_numpy(label)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=4_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--classes", type=int, default=297)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)

    store, queries, label = scene(args.rows, args.queries, args.dim, args.classes)
    retrieval_seconds = seconds(lambda: retrieve(store, queries, max(KS)), args.repeats)
    neighbours = retrieve(store, queries, max(KS))
    generator = torch.Generator().manual_seed(0)
    print(f"{args.rows:,} x {args.dim} rows, {args.queries:,} queries, {SETTINGS:,} settings, one thread")
    print(f"{'':28}{'seconds':>10}{'/ retrieval':>14}{'/ one by one':>14}")
    print(f"{'one retrieval':28}{retrieval_seconds:10.2f}{1:14.2f}")

    rows = LabelRows.from_classes(label % args.labels, args.labels)
    all_rows = torch.arange(len(label))
    cases = [
        ("single", "accuracy", args.classes, label[: args.rows], label[args.rows :]),
        *(
            (
                "multi_label",
                metric,
                args.labels,
                rows.take(all_rows[: args.rows]),
                rows.take(all_rows[args.rows :]),
            )
            for metric in ("micro_f1", "macro_f1")
        ),
    ]
    for task, metric, width, store_targets, query_targets in cases:
        # The simulated model has learned something: few labels are over the threshold, most of them right.
        logits = torch.randn(args.queries, width, generator=generator) - 3
        logits[torch.arange(args.queries), label[args.rows :] % width] += 4
        model = logits.sigmoid() if task == "multi_label" else logits.softmax(1)

        def ours(
            threshold=0.5,
            task=task,
            metric=metric,
            store_targets=store_targets,
            query_targets=query_targets,
            model=model,
        ) -> object:
            return search(
                QueryRows(neighbours, query_targets, model), store_targets, task=task, ks=KS, lambdas=LAMBDAS,
                temperatures=TEMPERATURES, scoring=Scoring(metric, "max", threshold),
            )  # fmt: skip

        def one_by_one(
            task=task,
            metric=metric,
            store_targets=store_targets,
            query_targets=query_targets,
            model=model,
            width=width,
        ) -> None:
            for lambda_ in LAMBDAS[:PEER_SETTINGS]:
                votes = knn_probabilities(neighbours, store_targets, task, 10, 1.0, width)
                evaluate(task, blend(votes, model, lambda_), query_targets, only=(metric,))

        our_seconds = seconds(ours, args.repeats)
        peer_seconds = seconds(one_by_one, 1) * SETTINGS / PEER_SETTINGS
        print(
            f"{metric + ', search':28}{our_seconds:10.2f}{our_seconds / retrieval_seconds:14.2f}"
            f"{our_seconds / peer_seconds:14.4f}"
        )
        print(f"{'  one by one (scaled up)':28}{peer_seconds:10.2f}{peer_seconds / retrieval_seconds:14.2f}")
        for mode in ("global", "per_label") if task == "multi_label" else ():
            mode_seconds = seconds(lambda mode=mode, ours=ours: ours(mode), args.repeats)
            print(
                f"{f'{metric}, {mode} threshold':28}"
                f"{mode_seconds:10.2f}{mode_seconds / retrieval_seconds:14.2f}"
            )


if __name__ == "__main__":
    main()
