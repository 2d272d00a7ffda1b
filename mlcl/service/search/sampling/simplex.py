"""Weights that are uniform on the simplex, from independent uniform numbers, and the way back.

Stick-breaking: of k weights, number j takes a share Beta(1, k - 1 - j) of what its predecessors left. What it
leaves has the quantile v^(1 / (k - 1 - j)) at a uniform v, so nothing is ever rejected. The uniform number
stands for what is left, not for what is taken: then a rest close to nothing survives the way back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def weights(total: float, sticks: Sequence[float]) -> list[float]:
    """One weight more than there are sticks; they add up to the total."""
    rest, found = total, []
    for pieces, stick in zip(range(len(sticks), 0, -1), sticks, strict=True):
        kept = stick ** (1 / pieces)
        found.append(rest * (1 - kept))
        rest *= kept
    return [*found, rest]


def sticks(weights: Sequence[float]) -> list[float]:
    """The sticks that these weights are broken from."""
    rests = [math.fsum(weights[j:]) for j in range(len(weights))]
    pieces = range(len(weights) - 1, 0, -1)
    return [
        (after / before) ** count if before > 0 else 1.0
        for before, after, count in zip(rests[:-1], rests[1:], pieces, strict=True)
    ]
