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
    treated_arms: Sequence[Arm],
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
    check_values((reference, *treated_arms), metric)
    kind: Pairing = ""
    if searches and len(reference.searches) > 1:
        kind = "search"
    elif seeds and len(reference.complete) == 1:
        kind = "seed"
    reference_units, units = _units(reference, kind), [_units(arm, kind) for arm in treated_arms]
    distinct = [not are_same(reference, arm) for arm in treated_arms]
    complete = [
        index
        for index, arm_units in enumerate(units)
        if distinct[index] and arm_units.keys() == reference_units.keys()
    ]
    differences = [difference_of(reference, arm, metric, mode) for arm in treated_arms]
    if len(reference_units) < 2:
        return differences
    for index, arm_units in enumerate(units):
        shared_numbers = sorted(reference_units.keys() & arm_units.keys())
        if index not in complete and distinct[index] and len(shared_numbers) > 1:
            unit_pair = [
                {number: outcomes[number] for number in shared_numbers}
                for outcomes in (reference_units, arm_units)
            ]
            (differences[index],) = _pair_arms((reference, treated_arms[index]), unit_pair, kind, mode)
    if complete:
        arms, all_units = (
            [reference, *(treated_arms[p] for p in complete)],
            [reference_units, *(units[p] for p in complete)],
        )
        for index, difference in zip(complete, _pair_arms(arms, all_units, kind, mode), strict=True):
            differences[index] = difference
    return differences


def _units(arm: Arm, kind: Pairing) -> Units:
    """Returns an arm's finite outcomes, keyed by search or seed; empty if it cannot be paired by `kind`."""
    if kind == "search" and len(arm.searches) > 1 and not arm.fitted:
        finite = ([outcome for outcome in search if math.isfinite(outcome.value)] for search in arm.searches)
        return {number: tuple(outcomes) for number, outcomes in enumerate(finite) if outcomes}
    if kind == "seed" and len(arm.complete) == 1 and not arm.fitted:
        return {outcome.seed: (outcome,) for outcome in arm.complete[0]}
    return {}


def _pair_arms(arms: Sequence[Arm], units: Sequence[Units], kind: Pairing, mode: str) -> list[Difference]:
    """Returns the paired differences of all arms to the first; all have the same units."""
    numbers = sorted(units[0])
    values = np.array(
        [[np.mean([outcome.value for outcome in arm_units[n]]) for n in numbers] for arm_units in units]
    )
    variance, freedom, most = shared_errors(values)
    kept_arms = [
        _select_units(arm, arm_units, numbers, kind) for arm, arm_units in zip(arms, units, strict=True)
    ]
    differences = []
    for index, arm in enumerate(kept_arms[1:], start=1):
        variances = variance[[0, index]]
        total = float(variances.sum())
        pair_freedom = float(pooled_freedom(variances, np.full(2, freedom)))
        seed_variance = total if kind == "seed" else min(total, _seeds_variance(kept_arms[0], arm))
        assumed_variance = kept_arms[0].assumed_deviation ** 2 + arm.assumed_deviation**2
        rows, blocks = row_variance((kept_arms[0], arm))
        errors = Errors(
            (assumed_variance, total), (0.0, seed_variance), (math.inf, min(pair_freedom, most)), rows, blocks
        )
        differences.append(build_difference((kept_arms[0], arm), errors, mode, paired=kind))
    return differences


def _select_units(arm: Arm, units: Units, numbers: Sequence[int], kind: Pairing) -> Arm:
    """Returns the arm with only the units `numbers`, in this order."""
    searches = tuple(units[number] for number in numbers)
    return replace(
        arm, searches=searches if kind == "search" else (tuple(outcome for (outcome,) in searches),)
    )


def _seeds_variance(reference: Arm, arm: Arm) -> float:
    """Returns the part of the difference's variance that comes from the seeds within searches."""
    pair = (reference, arm)
    reference_seeds, arm_seeds = (
        [[outcome.seed for outcome in search] for search in member.searches] for member in pair
    )
    if reference_seeds == arm_seeds:  # equal seeds may draw the same data
        return float(arm_error(outcome_values(arm) - outcome_values(reference)).seeds)
    return float(sum(arm_error(outcome_values(member)).seeds for member in pair))
