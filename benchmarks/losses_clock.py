"""Times several pieces of work in turns, so that noise of the machine affects all of them alike.

Seconds are the CPU time of the process itself. With one thread they equal the time that a clock shows on an
idle machine, and they do not include the time that other processes take on a busy one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

MOST_ROUNDS = 200


class Typical(NamedTuple):
    """A median and half of the distance between the quartiles, which is None for a single figure."""

    median: float
    spread: float | None = None


def in_turns(
    works: Mapping[str, Callable[[], Any]], seconds: float, least: Mapping[str, int]
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Returns the seconds of every call, round by round, and the last result of each work.

    In a round each work is called once. Every second round runs in reverse order, so that no work always
    follows the same other one and finds its caches. A work stops when it has used `seconds` and has had its
    `least` rounds (2 if it is not named), so that a slow peer is called only a few times; it is not called
    again later. The n-th times of two works belong to the same round.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    results: dict[str, Any] = {}
    for turn in range(MOST_ROUNDS):
        active_names = [name for name in works if turn < least.get(name, 2) or sum(times[name]) < seconds]
        if turn % 2:
            active_names.reverse()
        for name in active_names:
            start = time.process_time()
            results[name] = works[name]()
            times[name].append(time.process_time() - start)
        if not active_names:
            break
    return times, results


def typical(values: Sequence[float]) -> Typical:
    """Returns the median and spread over all rounds but the first, which warms up."""
    later_values = values[1:]
    if len(later_values) == 1:
        return Typical(later_values[0])
    low, middle, high = statistics.quantiles(later_values, n=4, method="inclusive")
    return Typical(middle, (high - low) / 2)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Typical:
    """Returns the typical ratio of two works' times in the same round."""
    return typical([a / b for a, b in zip(ours, theirs, strict=False)])
