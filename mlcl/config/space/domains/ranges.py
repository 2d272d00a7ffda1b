"""`float: [low, high]` and `log_float: [low, high]`: a number. `int: [low, high]`: a whole number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

from mlcl.config.space.condition import Term
from mlcl.config.space.domain import Cell, Dimension, Domain, Misfit
from mlcl.config.space.place import Place, read_range

POSTHOC_POINTS = 21
"""Points that a range is scored at where its key is answered after training."""


class _Range(Domain):
    """What the numbers and the whole numbers in [low, high] share."""

    low: float
    high: float
    number: ClassVar[type[int] | type[float]] = float
    """What its values are."""

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

    kinds = ("float", "log_float")
    continuous = True

    low: float
    high: float
    log: bool = False

    @classmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """From `[low, high]`; a logarithmic range lies above 0."""
        del keys
        low, high = read_range(place, value)
        if kind == "log_float" and low <= 0:
            raise place.error("a logarithmic range starts above 0", value)
        return cls(float(low), float(high), log=kind == "log_float")

    def cells(self, name: str, asked: Sequence[Term]) -> list[Cell]:
        """Pieces between the bounds of terms. A single value has no cell: it is never drawn."""
        del name
        bounds = {x for term in asked for x in (term.above, term.below) if x is not None}
        inside = sorted(x for x in bounds if self.low < x < self.high)
        return [Cell((low + high) / 2, None) for low, high in pairwise([self.low, *inside, self.high])]

    def grid(self) -> tuple[Any, ...]:
        """Points at equal distances, of the logarithm where it is logarithmic."""
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

    kinds = ("int",)
    number = int

    low: int
    high: int

    @classmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """From `[low, high]`."""
        del kind, keys
        low, high = read_range(place, value, whole=True)
        return cls(int(low), int(high))

    def cells(self, name: str, asked: Sequence[Term]) -> list[Cell]:
        """Runs of whole numbers for all of which each term holds, or for none."""
        del name
        cuts = {cut for cut in _cuts(asked) if self.low < cut <= self.high}
        edges = [self.low, *sorted(cuts), self.high + 1]
        return [Cell(low, high - low) for low, high in pairwise(edges)]

    def grid(self) -> tuple[Any, ...]:
        """All of them, or as many as a range is scored at, at about equal distances."""
        count = min(POSTHOC_POINTS, self.high - self.low + 1)
        step = (self.high - self.low) / (count - 1)
        return tuple(round(self.low + i * step) for i in range(count))

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """One whole number."""
        return {name: Dimension("whole", self.low, self.high)}

    def description(self) -> dict[str, Any]:
        """Kind, ends and scale."""
        return {"kind": "int", "low": self.low, "high": self.high, "scale": "linear"}


def _cuts(terms: Iterable[Term]) -> list[int]:
    cuts: list[int] = []
    for term in terms:
        for value in term.values:
            if isinstance(value, (int, float)) and float(value).is_integer():
                cuts += [int(value), int(value) + 1]
        if term.above is not None:
            cuts.append(math.floor(term.above) + 1)
        if term.below is not None:
            cuts.append(math.ceil(term.below))
    return cuts
