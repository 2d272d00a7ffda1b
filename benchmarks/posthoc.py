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
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
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
    a = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)

    store, queries, label = scene(a.rows, a.queries, a.dim, a.classes)
    retrieval = seconds(lambda: retrieve(store, queries, max(KS)), a.repeats)
    neighbours = retrieve(store, queries, max(KS))
    generator = torch.Generator().manual_seed(0)
    print(f"{a.rows:,} x {a.dim} rows, {a.queries:,} queries, {SETTINGS:,} settings, one thread")
    print(f"{'':28}{'seconds':>10}{'/ retrieval':>14}{'/ one by one':>14}")
    print(f"{'one retrieval':28}{retrieval:10.2f}{1:14.2f}")

    rows = LabelRows.from_classes(label % a.labels, a.labels)
    everything = torch.arange(len(label))
    cases = [
        ("single", "accuracy", a.classes, label[: a.rows], label[a.rows :]),
        *(
            (
                "multi_label",
                metric,
                a.labels,
                rows.take(everything[: a.rows]),
                rows.take(everything[a.rows :]),
            )
            for metric in ("micro_f1", "macro_f1")
        ),
    ]
    for task, metric, width, known, wanted in cases:
        # The simulated model has learned something: few labels are over the threshold, most of them right.
        logits = torch.randn(a.queries, width, generator=generator) - 3
        logits[torch.arange(a.queries), label[a.rows :] % width] += 4
        model = logits.sigmoid() if task == "multi_label" else logits.softmax(1)

        def ours(threshold=0.5, task=task, metric=metric, known=known, wanted=wanted, model=model) -> object:
            return search(
                QueryRows(neighbours, wanted, model), known, task=task, ks=KS, lambdas=LAMBDAS,
                temperatures=TEMPERATURES, scoring=Scoring(metric, "max", threshold),
            )  # fmt: skip

        def one_by_one(
            task=task, metric=metric, known=known, wanted=wanted, model=model, width=width
        ) -> None:
            for lambda_ in LAMBDAS[:PEER_SETTINGS]:
                votes = knn_probabilities(neighbours, known, task, 10, 1.0, width)
                evaluate(task, blend(votes, model, lambda_), wanted, only=(metric,))

        mine = seconds(ours, a.repeats)
        peer = seconds(one_by_one, 1) * SETTINGS / PEER_SETTINGS
        print(f"{metric + ', search':28}{mine:10.2f}{mine / retrieval:14.2f}{mine / peer:14.4f}")
        print(f"{'  one by one (scaled up)':28}{peer:10.2f}{peer / retrieval:14.2f}")
        for mode in ("global", "per_label") if task == "multi_label" else ():
            chosen = seconds(lambda mode=mode, ours=ours: ours(mode), a.repeats)
            print(f"{f'{metric}, {mode} threshold':28}{chosen:10.2f}{chosen / retrieval:14.2f}")


if __name__ == "__main__":
    main()
