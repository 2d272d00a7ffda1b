"""Estimates how many more seeds, searches or test rows would decide a verdict that is undecided."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy

from mlcl.significance.arm_errors import Array, half_width

MOST = 100
"""The largest multiple of the present seeds, searches or rows that is tried."""


@dataclass(frozen=True)
class Errors:
    """The variances of a difference of two arms.

    `arms` has the variance of each arm's mean over searches and seeds, `seeds` the part of it that comes from
    the seeds, `freedom` its degrees of freedom. `rows` is the variance from the test rows, estimated from
    `blocks` blocks of them; both are 0 if it was not estimated.
    """

    arms: tuple[float, ...]
    seeds: tuple[float, ...]
    freedom: tuple[float, ...]
    rows: float
    blocks: int

    def arrays(self) -> tuple[Array, Array]:
        """Returns variances and degrees of freedom of the parts (both arms, then test rows), each (3,)."""
        return np.array([*self.arms, self.rows]), np.array([*self.freedom, self.blocks - 1.0])

    def shares(self) -> dict[str, float]:
        """Returns the fractions of the variance by source; 0 where it is 0 or not finite."""
        total = sum(self.arms) + self.rows
        if not (math.isfinite(total) and total > 0):
            return {"searches": 0.0, "seeds": 0.0, "rows": 0.0}
        seeds = sum(self.seeds)
        parts = {"searches": sum(self.arms) - seeds, "seeds": seeds, "rows": self.rows}
        return {name: part / total for name, part in parts.items()}

    def with_more(self, what: str, times: float, searches: int) -> Errors:
        """Returns the variances expected with `times` as many seeds, searches (now `searches`) or rows."""
        if what == "rows":
            return replace(self, rows=self.rows / times)
        seeds = tuple(part / times for part in self.seeds)
        if what == "seeds":
            pairs = list(zip(self.arms, self.seeds, strict=True))
            arms = tuple(variance - part + part / times for variance, part in pairs)
            # The variance of a single search comes from its seeds alone, and so do its degrees of freedom.
            freedom = tuple(
                (df + 1) * times - 1 if searches == 1 and variance == part else df
                for df, (variance, part) in zip(self.freedom, pairs, strict=True)
            )
            return replace(self, arms=arms, seeds=seeds, freedom=freedom)
        arms, growth = tuple(part / times for part in self.arms), (searches * times - 1) / (searches - 1)
        return replace(self, arms=arms, seeds=seeds, freedom=tuple(df * growth for df in self.freedom))


@dataclass(frozen=True)
class Decider:
    """An estimate of what would decide an undecided verdict: a total of `about` `what`, such as 9 seeds.

    `about` is None if no affordable number decides. `rows` is the present number of test rows, 0 if unknown.
    `impossible` says that the variance from the test rows alone is too large, so that no number of further
    trainings decides.
    """

    what: Literal["seeds", "searches", "rows", "nothing"]
    about: int | None
    rows: int
    impossible: bool

    @property
    def sentence(self) -> str:
        """The estimate as a sentence without a full stop."""
        amount = f"about {self.about:,} {self.what}" if self.about else ""
        if self.impossible:
            test_rows = f"the {self.rows:,} test rows" if self.rows else "the test rows"
            remedy = f", {amount.replace('rows', 'test rows')} would" if amount else ""
            return f"{test_rows} are too few: more trainings cannot decide this{remedy}"
        if not amount:
            return "no affordable number of seeds, searches or test rows would decide"
        unit = "of test" if self.what == "rows" else "an arm"
        return f"{amount} {unit} would decide, were the difference as large as it seems"


def cheapest_decider(
    errors: Errors, *, target: float, searches: int, seeds: int, trainings: int, rows: int, level: float
) -> Decider | None:
    """Returns the first of seeds, searches and rows that can bring half the interval's width to `target`.

    `searches` is the present number of searches of an arm, `seeds` of seeds of a search, `rows` of test rows;
    a number that cannot grow is 0. `trainings` is the larger arm's number of seeds in all its searches,
    `level` the confidence level of the interval. Returns None if the interval is narrow enough already.
    """

    def scaled_half_width(source: str, times: float) -> float:
        return float(half_width(*errors.with_more(source, times, searches).arrays(), level))

    if scaled_half_width("rows", 1.0) <= target:
        return None
    rows_half_width = float(scipy.special.ndtri((1 + level) / 2)) * math.sqrt(errors.rows)
    impossible = rows_half_width > target
    if not impossible:
        if seeds and (least_count := _find_enough(scaled_half_width, "seeds", seeds, target)):
            return Decider("seeds", -(-least_count * trainings // seeds), rows, False)
        if searches > 1 and (least_count := _find_enough(scaled_half_width, "searches", searches, target)):
            return Decider("searches", least_count, rows, False)
    if rows and (least_count := _find_enough(scaled_half_width, "rows", rows, target)):
        return Decider("rows", two_digits(least_count), rows, impossible)
    return Decider("nothing", None, rows, impossible)


def _find_enough(
    scaled_half_width: Callable[[str, float], float], source: str, count: int, target: float
) -> int | None:
    """Returns the least number above `count` that narrows the interval enough; None above `count * MOST`."""
    low, high = count, count * MOST
    if scaled_half_width(source, high / count) > target:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if scaled_half_width(source, middle / count) <= target else (middle, high)
    return high


def two_digits(number: int) -> int:
    """Returns the number rounded up to two significant digits."""
    step = int(10 ** max(len(str(number)) - 2, 0))
    return math.ceil(number / step) * step
