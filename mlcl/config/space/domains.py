"""Domains: the values that a parameter of a space may have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

from mlcl.config.job import covers, flatten
from mlcl.config.space.keys import Term, same

CLOSE = 1e-9
"""Relative difference of a weight from its value before it was converted to sticks and back."""
POSTHOC_POINTS = 21
"""Number of points at which a range is scored if its key is scored after training."""


class Misfit(Exception):  # noqa: N818 (an answer, not a fault)
    """A job that is no point of the space."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Dimension:
    """One value that a search draws from [low, high]: a number, a whole number or a position in a list."""

    kind: Literal["number", "whole", "position"]
    low: float
    high: float
    log: bool = False


class Domain(ABC):
    """The values that a parameter may have.

    In all methods `name` is the parameter's name, and settings map keys of a job to values.
    """

    continuous: ClassVar[bool] = False
    """Whether the values are too many to try each."""

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The keys of the job that the parameter sets."""
        return (name,)

    @abstractmethod
    def ends(self, name: str) -> list[dict[str, Any]]:
        """Settings at the ends of a range, or with each listed value: where a job may become invalid."""

    @abstractmethod
    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Parts the values into groups within which each of the conditions `terms` holds or does not.

        Returns a value of each group and how many values it has; that number means nothing for a continuous
        domain.
        """

    @abstractmethod
    def dimensions(self, name: str) -> dict[str, Dimension]:
        """The dimensions that a search draws, by name."""

    @abstractmethod
    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """Settings where its dimensions have the values of `point`."""

    @abstractmethod
    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The values of its dimensions for a flat job. Raises Misfit."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Its kind and its values as plain data."""


class _Range(Domain):
    """Base class of numbers and whole numbers in [low, high]."""

    low: float
    high: float
    number: ClassVar[type[int] | type[float]] = float

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Low and high."""
        return [{name: self.low}, {name: self.high}]

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        return {name: point[name]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        value = job.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high:
            number = self.number(value)
            if number == value:
                return {name: number}
        raise Misfit(f"{name} is {value}, the space has {self.low:g} to {self.high:g}")


@dataclass(frozen=True)
class Float(_Range):
    """A number in [low, high], uniform or log-uniform."""

    low: float
    high: float
    log: bool = False
    continuous = True

    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the middle of each interval between the bounds of the conditions."""
        del name
        bounds = {x for term in terms for x in (term.above, term.below) if x is not None}
        inside = sorted(x for x in bounds if self.low < x < self.high)
        return [((low + high) / 2, 1) for low, high in pairwise([self.low, *inside, self.high])]

    def grid(self) -> tuple[Any, ...]:
        """Points at equal distances, in the logarithm where `log` is set."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        points = (low + (high - low) * i / (POSTHOC_POINTS - 1) for i in range(POSTHOC_POINTS))
        return tuple(round(math.exp(x) if self.log else x, 9) for x in points)

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """One number."""
        return {name: Dimension("number", self.low, self.high, self.log)}

    def description(self) -> dict[str, Any]:
        """Kind, ends and scale."""
        kind, scale = ("log_float", "log") if self.log else ("float", "linear")
        return {"kind": kind, "low": self.low, "high": self.high, "scale": scale}


@dataclass(frozen=True)
class Int(_Range):
    """A whole number in [low, high]."""

    low: int
    high: int
    number = int

    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the first of each run of numbers within which no condition changes, and its length."""
        del name
        cuts = {math.floor(term.above) + 1 for term in terms if term.above is not None}
        cuts |= {math.ceil(term.below) for term in terms if term.below is not None}
        values = [value for term in terms for value in term.values if isinstance(value, (int, float))]
        cuts |= {int(value) + i for value in values if float(value).is_integer() for i in (0, 1)}
        edges = [self.low, *sorted(cut for cut in cuts if self.low < cut <= self.high), self.high + 1]
        return [(low, high - low) for low, high in pairwise(edges)]

    def grid(self) -> tuple[Any, ...]:
        """All values, or POSTHOC_POINTS of them at about equal distances."""
        count = min(POSTHOC_POINTS, self.high - self.low + 1)
        step = (self.high - self.low) / (count - 1)
        return tuple(round(self.low + i * step) for i in range(count))

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """One whole number."""
        return {name: Dimension("whole", self.low, self.high)}

    def description(self) -> dict[str, Any]:
        """Kind, ends and scale."""
        return {"kind": "int", "low": self.low, "high": self.high, "scale": "linear"}


@dataclass(frozen=True)
class Choice(Domain):
    """One of listed values, which may be of any type, and whole sections of a job."""

    values: tuple[Any, ...]

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Every value."""
        return [{name: value} for value in self.values]

    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """Returns the first of the values for which the same conditions hold, and how many these are."""
        groups: dict[tuple[bool, ...], list[Any]] = {}
        for value in self.values:
            groups.setdefault(tuple(term.holds({name: value}) for term in terms), []).append(value)
        return [(values[0], len(values)) for values in groups.values()]

    def grid(self) -> tuple[Any, ...]:
        """The values."""
        return self.values

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """The position of a value, since the values may be of any type."""
        return {name: Dimension("position", 0, len(self.values) - 1)}

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The value at the position."""
        return {name: self.values[point[name]]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The position of the job's value.

        The value that shares most keys with a section of the job is that section's: other parameters may vary
        keys in it.
        """
        section = {key: value for key, value in job.items() if covers(name, key)}
        flat = [flatten({name: value}) for value in self.values]
        for position, value in enumerate(flat):
            if value.keys() == section.keys() and all(same(value[key], section[key]) for key in value):
                return {name: position}
        shared = [sum(key in section and same(its[key], section[key]) for key in its) for its in flat]
        closest = shared.index(max(shared))
        if isinstance(self.values[closest], Mapping) and shared[closest]:
            return {name: closest}
        found = section.get(name, section or None)
        raise Misfit(f"{name} is {found}, the space has {list(self.values)}")

    def description(self) -> dict[str, Any]:
        """Kind and values."""
        return {"kind": "choice", "values": list(self.values)}


@dataclass(frozen=True)
class Simplex(Domain):
    """Non-negative weights that add up to a total in [low, high], uniform on the simplex.

    There is one weight for each of `keys`, or with `size` a list of so many weights under the one key.

    A search draws independent uniform numbers, the sticks. Of k weights, number j takes a share
    Beta(1, k - 1 - j) of the rest that its predecessors left; the rest after it has the quantile
    v^(1 / (k - 1 - j)) at a uniform v, so that no draw is rejected. A stick v stands for the rest and not for
    the share: a rest close to zero then survives the conversion back.
    """

    keys: tuple[str, ...]
    low: float
    high: float
    size: int | None = None
    continuous = True

    @property
    def count(self) -> int:
        """The number of weights."""
        return self.size or len(self.keys)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """All keys that share the total."""
        del name
        return self.keys

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Equal weights of the lowest and of the highest total."""
        del name
        return [self._settings([total / self.count] * self.count) for total in (self.low, self.high)]

    def groups(self, name: str, terms: Sequence[Term]) -> list[tuple[Any, int]]:
        """One group: there are no conditions on weights."""
        del name, terms
        return [(None, 1)]

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """The sticks, and before them the total if it is a range."""
        sticks = dict.fromkeys(self._sticks(name), Dimension("number", 0.0, 1.0))
        if self.low < self.high:
            return {f"{name}.total": Dimension("number", self.low, self.high), **sticks}
        return sticks

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The weights."""
        total = point.get(f"{name}.total", self.low)
        return self._settings(weights_of(total, [point[stick] for stick in self._sticks(name)]))

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The sticks, and the total if it is a range."""
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
        found = dict(zip(self._sticks(name), sticks_of(weights), strict=True))
        if self.low < self.high:
            found[f"{name}.total"] = min(max(total, self.low), self.high)
        return found

    def description(self) -> dict[str, Any]:
        """Kind, range of the total, keys and number of weights."""
        ends = {"low": self.low, "high": self.high}
        return {"kind": "simplex", **ends, "keys": list(self.keys), "weights": self.count}

    def _settings(self, weights: list[float]) -> dict[str, Any]:
        return {self.keys[0]: weights} if self.size else dict(zip(self.keys, weights, strict=True))

    def _sticks(self, name: str) -> list[str]:
        return [f"{name}.stick{j}" for j in range(self.count - 1)]


def weights_of(total: float, sticks: Sequence[float]) -> list[float]:
    """The weights that sticks stand for: one weight more than there are sticks, which add up to the total."""
    rest, found = total, []
    for pieces, stick in zip(range(len(sticks), 0, -1), sticks, strict=True):
        kept = stick ** (1 / pieces)
        found.append(rest * (1 - kept))
        rest *= kept
    return [*found, rest]


def sticks_of(weights: Sequence[float]) -> list[float]:
    """The sticks that stand for these weights: the inverse of `weights_of`."""
    rests = [math.fsum(weights[j:]) for j in range(len(weights))]
    pieces = range(len(weights) - 1, 0, -1)
    return [
        (after / before) ** count if before > 0 else 1.0
        for before, after, count in zip(rests[:-1], rests[1:], pieces, strict=True)
    ]
