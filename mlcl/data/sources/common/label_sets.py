"""Finds the frequencies of label sets that give the asked shares of equal, nested and other pairs.

The sets are those of 1 to MOST of L labels. A rotation adds the same number to all labels of a set, modulo L;
the sets that rotations turn into each other are an orbit. All sets of an orbit are equally probable, so that
all labels are equally frequent. Shapes: O orbits, K relations, U sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

RELATIONS = ("disjoint", "equal", "overlap", "nested")
"""R1, R2, R3, and R4 or R5 of Similarity-Dissimilarity, Eq. 8-12; R4 is R5 of the exchanged pair."""
MOST = 4
STARTS = 8
SIZE, ENTROPY = 0.1, 1e-5
"""The weights, beside squared errors of shares, of that of the mean size and of the entropy, which is larger
the more sets there are."""

Array = NDArray[np.float64]
LabelSet = frozenset[int]


def relation(one: LabelSet, other: LabelSet) -> int:
    """Returns the index in RELATIONS of a pair of sets. An empty set is disjoint from every set."""
    if not one & other:
        return 0
    if one == other:
        return 1
    return 3 if one < other or other < one else 2


def shares_of(sets: Iterable[LabelSet]) -> dict[str, float]:
    """Returns the share of each relation among the pairs of two different rows with these sets."""
    counts = Counter(sets)
    pairs = dict.fromkeys(RELATIONS, 0)
    for one, its in counts.items():
        for other, others in counts.items():
            pairs[RELATIONS[relation(one, other)]] += its * (others - (one == other))
    total = sum(pairs.values())
    return {name: count / total for name, count in pairs.items()}


def fitted(shares: Mapping[str, float], labels: int, size: float) -> dict[LabelSet, float]:
    """Returns the probability of each label set, so that two drawn sets have the relations as asked, nearly.

    Args:
        shares: The share of each of RELATIONS among pairs of independent draws.
        labels: The number of labels, L.
        size: The mean number of labels of a set.
    """
    from scipy.optimize import minimize

    orbits = _orbits(labels)
    pairs_KOO = _pairs(orbits)
    wanted_K = np.array([shares[name] for name in RELATIONS])
    sizes_O = np.array([len(orbit[0]) for orbit in orbits], dtype=float)

    def loss(logit_O: Array) -> tuple[float, Array]:
        p_O = _softmax(logit_O)
        half_KO = pairs_KOO @ p_O
        error_K, excess = half_KO @ p_O - wanted_K, p_O @ sizes_O - size
        log_O = np.log(p_O + 1e-300)
        value = error_K @ error_K + SIZE * excess**2 + ENTROPY * p_O @ log_O
        slope_O = 4 * error_K @ half_KO + 2 * SIZE * excess * sizes_O + ENTROPY * (log_O + 1)
        return float(value), p_O * (slope_O - p_O @ slope_O)

    best, p_O = np.inf, np.ones(len(orbits))
    for seed in range(STARTS):
        start = np.random.default_rng(seed).normal(size=len(orbits))
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
        if found.fun < best:
            best, p_O = found.fun, _softmax(found.x)
    # Rounded, since the last digits may differ between machines.
    p_O = p_O.round(4)
    each = zip(orbits, p_O / p_O.sum(), strict=True)
    return {its: float(p) / len(orbit) for orbit, p in each if p > 0 for its in orbit}


def _softmax(logit_O: Array) -> Array:
    power_O: Array = np.exp(logit_O - logit_O.max())
    power_O /= power_O.sum()
    return power_O


def _orbits(labels: int) -> list[list[LabelSet]]:
    """Returns the orbits, each as a list of its distinct sets."""
    left = dict.fromkeys(
        frozenset(chosen)
        for size in range(1, min(MOST, labels) + 1)
        for chosen in combinations(range(labels), size)
    )
    orbits = []
    while left:
        first = next(iter(left))
        turned = (frozenset((label + turn) % labels for label in first) for turn in range(labels))
        orbits.append(list(dict.fromkeys(turned)))
        for its in orbits[-1]:
            del left[its]
    return orbits


def _pairs(orbits: list[list[LabelSet]]) -> Array:
    """Returns the probability of each relation (K, O, O) of a set of one orbit and a set of another."""
    pairs_KOO = np.zeros((len(RELATIONS), len(orbits), len(orbits)))
    for i, one in enumerate(orbits):
        for j, other in enumerate(orbits):
            for its in other:
                pairs_KOO[relation(one[0], its), i, j] += 1 / len(other)
    return pairs_KOO
