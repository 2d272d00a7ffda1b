"""Measures the share of a pass that is spent on labels: finding distinct sets and counting shared labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from losses_clock import Typical, ratio
from losses_scenes import Case, one_pass

from mlcl.losses.sets import LabelSets

WORK = ("distinct", "drop_unique_labels", "shared", "equal_to", "take", "of_rows")
"""The methods that read labels; the products with embeddings are in other methods."""


def label_share(case: Case, rounds: int = 9) -> Typical:
    """Returns the share of CPU time that passes spend in the methods of WORK."""
    run = one_pass("ours", case)
    label_times, total_times = [], []
    for _ in range(rounds):
        with _watched() as seconds:
            start = time.process_time()
            run()
            total_times.append(time.process_time() - start)
        label_times.append(seconds[0])
    return ratio(label_times, total_times)


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Adds up the time that is spent in WORK; a call from inside another one is not counted twice."""
    seconds, depth = [0.0], [0]
    originals = {name: vars(LabelSets)[name] for name in WORK}

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.process_time()
            depth[0] += 1
            try:
                return function(*arguments)
            finally:
                depth[0] -= 1
                seconds[0] += 0.0 if depth[0] else time.process_time() - start

        return call

    for name, original in originals.items():
        static = isinstance(original, classmethod)
        setattr(LabelSets, name, classmethod(timed(original.__func__)) if static else timed(original))
    try:
        yield seconds
    finally:
        for name, original in originals.items():
            setattr(LabelSets, name, original)
