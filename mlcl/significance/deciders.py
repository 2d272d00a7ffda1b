"""The cheapest of more seeds, more searches and more test rows that would decide a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from mlcl.significance.arm_errors import Array, half_width

MOST = 100
"""The most times as many seeds, searches or rows as there are that are tried."""


@dataclass(frozen=True)
class Errors:
    """Variances of a difference: of both arms' means, the seeds' part of each, and of the test rows."""

    arms: tuple[float, float]
    seeds: tuple[float, float]
    freedom: tuple[float, float]
    rows: float
    blocks: int

    def arrays(self) -> tuple[Array, Array]:
        """Variances and degrees of freedom of the three parts."""
        return np.array([*self.arms, self.rows]), np.array([*self.freedom, self.blocks - 1.0])

    def shares(self) -> dict[str, float]:
        """The shares of the whole variance that come from searches, seeds and rows; zeros where it is 0."""
        total = sum(self.arms) + self.rows
        if not (math.isfinite(total) and total > 0):
            return {"searches": 0.0, "seeds": 0.0, "rows": 0.0}
        seeds = sum(self.seeds)
        return {
            "searches": (sum(self.arms) - seeds) / total,
            "seeds": seeds / total,
            "rows": self.rows / total,
        }

    def with_more(self, what: str, times: float, searches: int) -> Errors:
        """The errors expected with `times` as many seeds, searches or rows."""
        if what == "rows":
            return replace(self, rows=self.rows / times)
        if what == "seeds":
            pairs = zip(self.arms, self.seeds, strict=True)
            first, second = (whole - part + part / times for whole, part in pairs)
            return replace(self, arms=(first, second), seeds=(self.seeds[0] / times, self.seeds[1] / times))
        grown = (searches * times - 1) / (searches - 1)
        return replace(
            self,
            arms=(self.arms[0] / times, self.arms[1] / times),
            seeds=(self.seeds[0] / times, self.seeds[1] / times),
            freedom=(self.freedom[0] * grown, self.freedom[1] * grown),
        )


@dataclass(frozen=True)
class Decider:
    """About how many of seeds or searches of an arm, or test rows, would decide; `about` is None for none.

    `impossible`: whether the rows alone forbid that more trainings decide.
    """

    what: Literal["seeds", "searches", "rows", "nothing"]
    about: int | None
    rows: int
    rows_share: float
    impossible: bool

    @property
    def sentence(self) -> str:
        """The advice in words, without a full stop."""
        would = f"about {self.about:,} {self.what}" if self.about else ""
        if self.impossible:
            share = f"{self.rows_share:.0%} of the interval's variance comes from the "
            share += f"{self.rows:,} test rows" if self.rows else "test rows"
            end = f", {would.replace('rows', 'test rows')} would" if would else ""
            return f"{share}: more trainings cannot decide this{end}"
        if not would:
            return "no affordable number of seeds, searches or test rows would decide"
        unit = {"seeds": " an arm", "searches": " an arm", "rows": " of test"}.get(self.what, "")
        return f"{would}{unit} would decide, were the difference as large as it seems"


def cheapest_decider(
    errors: Errors, *, target: float, searches: int, seeds: int, rows: int, level: float
) -> Decider | None:
    """The cheapest that brings half the width to `target`: seeds, then searches, then rows.

    None where the width is there already. `searches` are those of an arm, `seeds` those of a search, `rows`
    those of test; 0 for what cannot grow.
    """

    def half(what: str, times: float) -> float:
        return float(half_width(*errors.with_more(what, times, searches).arrays(), level))

    if half("rows", 1.0) <= target:
        return None
    share = errors.shares()["rows"]
    reach = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt(errors.rows)
    impossible = reach > target
    if not impossible:
        if seeds and (enough := _enough(half, "seeds", seeds, target)):
            return Decider("seeds", enough * max(searches, 1), rows, share, False)
        if searches > 1 and (enough := _enough(half, "searches", searches, target)):
            return Decider("searches", enough, rows, share, False)
    if rows and (enough := _enough(half, "rows", rows, target)):
        return Decider("rows", two_digits(enough), rows, share, impossible)
    return Decider("nothing", None, rows, share, impossible)


def _enough(half: Callable[[str, float], float], what: str, now: int, target: float) -> int | None:
    """The smallest number above `now` that suffices, by bisection; None where `MOST` times does not."""
    low, high = now, now * MOST
    if half(what, high / now) > target:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half(what, middle / now) <= target else (middle, high)
    return high


def two_digits(number: int) -> int:
    """The number with two significant digits, rounded up."""
    step = int(10 ** max(len(str(number)) - 2, 0))
    return math.ceil(number / step) * step
