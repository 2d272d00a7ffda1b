"""`float: [low, high]` and `log_float: [low, high]`: a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from mlcl.config.space.condition import Term
from mlcl.config.space.domain import Cell, Dimension, Domain
from mlcl.config.space.error_location import Place
from mlcl.config.space.numbers import POSTHOC_POINTS, number_of, read_range


@dataclass(frozen=True)
class Float(Domain):
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

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Low and high."""
        return [{name: self.low}, {name: self.high}]

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

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        return {name: point[name]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        return {name: number_of(name, job, self.low, self.high)}

    def description(self) -> dict[str, Any]:
        """Kind, ends and scale."""
        kind, scale = ("log_float", "log") if self.log else ("float", "linear")
        return {"kind": kind, "low": self.low, "high": self.high, "scale": scale}
