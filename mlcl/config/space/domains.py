"""The domains of a space's parameters, which are the values that a parameter may have.

In all methods `name` is the name of the parameter. Settings are values keyed by the keys of a job, and a
point has a value for the name of each dimension. A job is checked with the settings at a domain's `ends`.
`groups` returns a value and the size of each group of values that meet the same conditions in `terms`; the
size has no meaning for a `continuous` domain, which has too many values to try each of them. `point_of`
raises Misfit for a flat job with values that the domain lacks. `description` returns plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

from mlcl.config.job import covers, flatten
from mlcl.config.space.keys import Term, are_equal

CLOSE = 1e-9
"""The relative tolerance for weights, since conversion to stick-breaking fractions and back rounds them."""
POSTHOC_POINTS = 21
"""The number of values of a post-hoc key that are scored if the space has a range for it."""


class Misfit(Exception):  # noqa: N818 (an expected result, not a failure)
    """The exception for a job that is not a point of the space."""


@dataclass(frozen=True)
class Dimension:
    """A value that a search draws from [low, high]: a number, an integer, or the index of a listed value."""

    kind: Literal["number", "whole", "position"]
    low: float
    high: float
    log: bool = False


class _Range:
    """The base class of the domains of numbers in [low, high]."""

    low: float
    high: float
    number: ClassVar[type[int] | type[float]] = float
    continuous: ClassVar[bool] = False

    def ends(self, name: str) -> list[dict[str, Any]]:
        return [{name: self.low}, {name: self.high}]

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        return {name: point[name]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        value = job.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high:
            number = self.number(value)
            if number == value:
                return {name: number}
        raise Misfit(f"{name} is {value}, the space has {self.low:g} to {self.high:g}")


@dataclass(frozen=True)
class Float(_Range):
    """A number in [low, high], with a uniform or a log-uniform distribution."""

    low: float
    high: float
    log: bool = False
    continuous = True

    def groups(self, _name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the middle of each interval between the bounds in the conditions."""
        bounds = {bound for term in terms for bound in (term.above, term.below) if bound is not None}
        inner_bounds = sorted(bound for bound in bounds if self.low < bound < self.high)
        return [((low + high) / 2, 1) for low, high in pairwise([self.low, *inner_bounds, self.high])]

    def grid(self) -> tuple[Any, ...]:
        """Returns `POSTHOC_POINTS` numbers at equal distances, on a logarithmic scale if `log` is set."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        points = (low + (high - low) * i / (POSTHOC_POINTS - 1) for i in range(POSTHOC_POINTS))
        return tuple(round(math.exp(point) if self.log else point, 9) for point in points)

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """Returns one dimension, the number."""
        return {name: Dimension("number", self.low, self.high, self.log)}

    def description(self) -> dict[str, Any]:
        """Returns kind, range and scale."""
        kind, scale = ("log_float", "log") if self.log else ("float", "linear")
        return {"kind": kind, "low": self.low, "high": self.high, "scale": scale}


@dataclass(frozen=True)
class Int(_Range):
    """An integer in [low, high], with a uniform distribution."""

    low: int
    high: int
    number = int

    def groups(self, _name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the first number and the length of each interval in which no condition changes."""
        cuts = {math.floor(term.above) + 1 for term in terms if term.above is not None}
        cuts |= {math.ceil(term.below) for term in terms if term.below is not None}
        values = [value for term in terms for value in term.values if isinstance(value, (int, float))]
        cuts |= {int(value) + i for value in values if float(value).is_integer() for i in (0, 1)}
        edges = [self.low, *sorted(cut for cut in cuts if self.low < cut <= self.high), self.high + 1]
        return [(low, high - low) for low, high in pairwise(edges)]

    def grid(self) -> tuple[Any, ...]:
        """Returns all numbers, or `POSTHOC_POINTS` of them at about equal distances if there are more."""
        count = min(POSTHOC_POINTS, self.high - self.low + 1)
        step = (self.high - self.low) / (count - 1)
        return tuple(round(self.low + i * step) for i in range(count))

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """Returns one dimension, the integer."""
        return {name: Dimension("whole", self.low, self.high)}

    def description(self) -> dict[str, Any]:
        """Returns kind, range and scale."""
        return {"kind": "int", "low": self.low, "high": self.high, "scale": "linear"}


@dataclass(frozen=True)
class Choice:
    """A choice among listed values, which may have any type and may be whole sections of a job."""

    values: tuple[Any, ...]
    continuous: ClassVar[bool] = False

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Returns the settings with each value."""
        return [{name: value} for value in self.values]

    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the first value and the size of each group of values that meet the same conditions."""
        groups: dict[tuple[bool, ...], list[Any]] = {}
        for value in self.values:
            groups.setdefault(tuple(term.holds({name: value}) for term in terms), []).append(value)
        return [(values[0], len(values)) for values in groups.values()]

    def grid(self) -> tuple[Any, ...]:
        """Returns the values."""
        return self.values

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """Returns one dimension, the index of a value, since values may have any type."""
        return {name: Dimension("position", 0, len(self.values) - 1)}

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the value at the point's index as settings."""
        return {name: self.values[point[name]]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the index of the job's value.

        If no listed section equals the job's section, the one with the most equal keys is taken, since other
        parameters may vary keys of the section.
        """
        section = {key: value for key, value in job.items() if covers(name, key)}
        options = [flatten({name: value}) for value in self.values]
        for position, option in enumerate(options):
            if option.keys() == section.keys() and all(
                are_equal(option[key], section[key]) for key in option
            ):
                return {name: position}
        match_counts = [
            sum(key in section and are_equal(option[key], section[key]) for key in option)
            for option in options
        ]
        best = match_counts.index(max(match_counts))
        if isinstance(self.values[best], Mapping) and match_counts[best]:
            return {name: best}
        job_value = section.get(name, section or None)
        raise Misfit(f"{name} is {job_value}, the space has {list(self.values)}")

    def description(self) -> dict[str, Any]:
        """Returns kind and values."""
        return {"kind": "choice", "values": list(self.values)}


@dataclass(frozen=True)
class Simplex:
    """Non-negative weights with a sum in [low, high], with a uniform distribution on the simplex.

    Each of `keys` has one weight. If `size` is set, there is one key, which has a list of `size` weights.

    The weights are drawn by stick-breaking. For each weight but the last, a search draws a fraction v
    uniformly from [0, 1]. Weight j of k (from 0) leaves the share v^(1 / (k - 1 - j)) of the sum that is left
    before it. The share that it takes has the distribution Beta(1, k - 1 - j), and no draw is rejected. v
    determines the share that is left and not the share that is taken, since rounding would lose a left share
    close to 0 when weights are converted back to fractions.
    """

    keys: tuple[str, ...]
    low: float
    high: float
    size: int | None = None
    continuous: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """The number of weights."""
        return self.size or len(self.keys)

    def ends(self, _name: str) -> list[dict[str, Any]]:
        """Returns the settings with equal weights that have the lowest and the highest sum."""
        return [self._settings([total / self.count] * self.count) for total in (self.low, self.high)]

    def groups(self, _name: str, _terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns one group, since conditions cannot refer to weights."""
        return [(None, 1)]

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """Returns the dimensions of the sum, if it is a range, and of the stick-breaking fractions."""
        sticks = dict.fromkeys(self._sticks(name), Dimension("number", 0.0, 1.0))
        if self.low < self.high:
            return {f"{name}.total": Dimension("number", self.low, self.high), **sticks}
        return sticks

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the weights at the point as settings."""
        total = point.get(f"{name}.total", self.low)
        return self._settings(weights_of(total, [point[stick] for stick in self._sticks(name)]))

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the stick-breaking fractions of the job's weights, and their sum if it is a range."""
        weights = job.get(self.keys[0]) if self.size else [job.get(key) for key in self.keys]
        if (
            not isinstance(weights, list)
            or len(weights) != self.count
            or not all(isinstance(weight, (int, float)) and weight >= 0 for weight in weights)
        ):
            raise Misfit(f"{name} is {weights}, the space has {self.count} weights")
        total = math.fsum(weights)
        if not self.low * (1 - CLOSE) <= total <= self.high * (1 + CLOSE):
            raise Misfit(f"{name} adds up to {total:g}, the space has {self.low:g} to {self.high:g}")
        point = dict(zip(self._sticks(name), sticks_of(weights), strict=True))
        if self.low < self.high:
            point[f"{name}.total"] = min(max(total, self.low), self.high)
        return point

    def description(self) -> dict[str, Any]:
        """Returns kind, range of the sum, keys and number of weights."""
        ends = {"low": self.low, "high": self.high}
        return {"kind": "simplex", **ends, "keys": list(self.keys), "weights": self.count}

    def _settings(self, weights: list[float]) -> dict[str, Any]:
        return {self.keys[0]: weights} if self.size else dict(zip(self.keys, weights, strict=True))

    def _sticks(self, name: str) -> list[str]:
        return [f"{name}.stick{j}" for j in range(self.count - 1)]


Domain = Float | Int | Choice | Simplex


def weights_of(total: float, sticks: Sequence[float]) -> list[float]:
    """Returns weights that add up to `total` for stick-breaking fractions, one weight more than fractions."""
    remainder, weights = total, []
    for pieces, stick in zip(range(len(sticks), 0, -1), sticks, strict=True):
        left_share = stick ** (1 / pieces)
        weights.append(remainder * (1 - left_share))
        remainder *= left_share
    return [*weights, remainder]


def sticks_of(weights: Sequence[float]) -> list[float]:
    """Returns the stick-breaking fractions of weights, as the inverse of `weights_of`."""
    remainders = [math.fsum(weights[j:]) for j in range(len(weights))]
    pieces = range(len(weights) - 1, 0, -1)
    return [
        (after / before) ** count if before > 0 else 1.0
        for before, after, count in zip(remainders[:-1], remainders[1:], pieces, strict=True)
    ]
