"""`int: [low, high]`: a whole number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from mlcl.config.space.condition import Term
from mlcl.config.space.domain import Cell, Dimension, Domain
from mlcl.config.space.error_location import Place
from mlcl.config.space.numbers import POSTHOC_POINTS, number_of, read_range


@dataclass(frozen=True)
class Int(Domain):
    """A whole number in [low, high]."""

    kinds = ("int",)

    low: int
    high: int

    @classmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """From `[low, high]`."""
        del kind, keys
        low, high = read_range(place, value, whole=True)
        return cls(int(low), int(high))

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Low and high."""
        return [{name: self.low}, {name: self.high}]

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

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        return {name: point[name]}

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The number itself."""
        return {name: number_of(name, job, self.low, self.high, whole=True)}

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
