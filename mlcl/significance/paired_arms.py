"""Differences of arms to a reference, paired where equal seeds or search numbers draw the same data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcl.significance.arm_errors import arm_error, pooled_freedom, shared_errors
from mlcl.significance.arms import (
    Arm,
    Difference,
    Outcome,
    Pairing,
    are_same,
    build_difference,
    check_values,
    difference_of,
    outcome_values,
    row_variance,
)
from mlcl.significance.deciders import Errors

Units = dict[int, tuple[Outcome, ...]]
"""The outcomes of an arm, keyed by the number of the search or by the seed."""


def differences_of(
    reference: Arm,
    others: Sequence[Arm],
    metric: str,
    mode: str,
    *,
    searches: bool = False,
    seeds: bool = False,
) -> list[Difference]:
    """Returns the difference of each arm to the reference: the control, or the best baseline.

    Arms are paired with the reference by search number or by seed (units), whose shared effects then cancel.
    The arms that have all units of the reference are estimated together, see `shared_errors`; an arm that
    shares fewer than two units with the reference is compared without pairing. `searches` says whether
    searches of equal number draw the same data in all arms, `seeds` whether equal seeds do, which is used for
    arms with one search. `mode` is max or min; `metric` is for messages. Raises ValueError where an arm has
    no finite value.
    """
    check_values((reference, *others), metric)
    kind: Pairing = ""
    if searches and len(reference.searches) > 1:
        kind = "search"
    elif seeds and len(reference.complete) == 1:
        kind = "seed"
    own, units = _units(reference, kind), [_units(arm, kind) for arm in others]
    apart = [not are_same(reference, arm) for arm in others]
    whole = [place for place, its in enumerate(units) if apart[place] and its.keys() == own.keys()]
    found = [difference_of(reference, arm, metric, mode) for arm in others]
    if len(own) < 2:
        return found
    for place, its in enumerate(units):
        shared = sorted(own.keys() & its.keys())
        if place not in whole and apart[place] and len(shared) > 1:
            both = [{number: each[number] for number in shared} for each in (own, its)]
            (found[place],) = _paired((reference, others[place]), both, kind, mode)
    if whole:
        arms, all_units = [reference, *(others[p] for p in whole)], [own, *(units[p] for p in whole)]
        for place, difference in zip(whole, _paired(arms, all_units, kind, mode), strict=True):
            found[place] = difference
    return found


def _units(arm: Arm, kind: Pairing) -> Units:
    """Returns an arm's finite outcomes, keyed by search or seed; empty if it cannot be paired by `kind`."""
    if kind == "search" and len(arm.searches) > 1 and not arm.fitted:
        finite = ([each for each in its if math.isfinite(each.value)] for its in arm.searches)
        return {number: tuple(its) for number, its in enumerate(finite) if its}
    if kind == "seed" and len(arm.complete) == 1 and not arm.fitted:
        return {each.seed: (each,) for each in arm.complete[0]}
    return {}


def _paired(arms: Sequence[Arm], units: Sequence[Units], kind: Pairing, mode: str) -> list[Difference]:
    """Returns the paired differences of all arms to the first; all have the same units."""
    numbers = sorted(units[0])
    values = np.array([[np.mean([each.value for each in its[n]]) for n in numbers] for its in units])
    variance, freedom, most = shared_errors(values)
    kept = [_kept(arm, its, numbers, kind) for arm, its in zip(arms, units, strict=True)]
    found = []
    for place, arm in enumerate(kept[1:], start=1):
        both = variance[[0, place]]
        whole = float(both.sum())
        parts = float(pooled_freedom(both, np.full(2, freedom)))
        part = whole if kind == "seed" else min(whole, _seeds_variance(kept[0], arm))
        assumed = kept[0].assumed_deviation ** 2 + arm.assumed_deviation**2
        rows, blocks = row_variance((kept[0], arm))
        errors = Errors((assumed, whole), (0.0, part), (math.inf, min(parts, most)), rows, blocks)
        found.append(build_difference((kept[0], arm), errors, mode, paired=kind))
    return found


def _kept(arm: Arm, units: Units, numbers: Sequence[int], kind: Pairing) -> Arm:
    """Returns the arm with only the units `numbers`, in this order."""
    searches = tuple(units[number] for number in numbers)
    return replace(arm, searches=searches if kind == "search" else (tuple(each for (each,) in searches),))


def _seeds_variance(reference: Arm, arm: Arm) -> float:
    """Returns the part of the difference's variance that comes from the seeds within searches."""
    both = (reference, arm)
    one, other = ([[each.seed for each in its] for its in each.searches] for each in both)
    if one == other:  # equal seeds may draw the same data
        return float(arm_error(outcome_values(arm) - outcome_values(reference)).seeds)
    return float(sum(arm_error(outcome_values(each)).seeds for each in both))
