"""Times of several pieces of work, taken in turns, so that a noisy machine is noisy for all of them.

Seconds are the process's own processor time: with one thread that is what a clock shows on an idle machine,
and what other processes take of a busy one is not in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

MOST_ROUNDS = 200


class Typical(NamedTuple):
    """A median and half of the distance between the quartiles, None for a single figure."""

    median: float
    spread: float | None = None


def in_turns(
    works: Mapping[str, Callable[[], Any]], seconds: float, least: Mapping[str, int]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of every call, round by round, and what each work returned last.

    In a round each work is called once, in every second one from the last to the first, so that none always
    finds the caches as the same other leaves them. A work leaves when it has used `seconds` and has had its
    `least` rounds (2 where not named), so a slow peer is called seldom; who has left does not come back, and
    the n-th times of two works are of the same round.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, Any] = {}
    for turn in range(MOST_ROUNDS):
        staying = [n for n in works if turn < least.get(n, 2) or sum(times[n]) < seconds]
        if turn % 2:
            staying.reverse()
        for name in staying:
            began = time.process_time()
            results[name] = works[name]()
            times[name].append(time.process_time() - began)
        if not staying:
            break
    return times, results


def typical(values: Sequence[float]) -> Typical:
    """Over all rounds but the first, which warms up."""
    counted = values[1:]
    if len(counted) == 1:
        return Typical(counted[0])
    low, middle, high = statistics.quantiles(counted, n=4, method="inclusive")
    return Typical(middle, (high - low) / 2)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Typical:
    """The typical ratio of two works' times in the same round."""
    return typical([a / b for a, b in zip(ours, theirs, strict=False)])
