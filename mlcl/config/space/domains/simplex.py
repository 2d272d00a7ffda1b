"""`simplex: {total: ...}`: weights that are uniform on the simplex, from independent uniform numbers.

Stick-breaking: of k weights, number j takes a share Beta(1, k - 1 - j) of what its predecessors left. What it
leaves has the quantile v^(1 / (k - 1 - j)) at a uniform v, so nothing is ever rejected. The uniform number
stands for what is left, not for what is taken: then a rest close to nothing survives the way back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mlcl.config.space.condition import Term
from mlcl.config.space.domain import CLOSE, Cell, Dimension, Domain, Misfit
from mlcl.config.space.place import Place, is_number, read_range

_WRITTEN = "{total: 1.0} or {total: [low, high]}, with: [keys] or size: n besides"


@dataclass(frozen=True)
class Simplex(Domain):
    """Non-negative weights that add up to a total in [low, high], uniform on the simplex.

    One weight for each of `keys`; with `size`, a list of so many weights under the one key.
    """

    kinds = ("simplex",)
    continuous = True
    joint = True
    not_posthoc = "not a set of weights"

    keys: tuple[str, ...]
    low: float
    high: float
    size: int | None = None

    @classmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """From `{total, with, size}`."""
        del kind
        written = _written(place, value)
        size = written.get("size")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 2):
            raise place.error("size is how many weights the list has", size, "2 or more")
        if size is not None and _with(place, written):
            raise place.error("weights are either a list of a size or with other keys, not both")
        return cls(keys, *_total(place, written["total"]), size)

    @classmethod
    def shared_with(cls, place: Place, value: Any) -> Sequence[str] | None:
        """What `with` lists; None with `size`, where each key has a list of weights."""
        written = _written(place, value)
        return _with(place, written) if written.get("size") is None else None

    @property
    def count(self) -> int:
        """How many weights."""
        return self.size or len(self.keys)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """All keys that share the weights."""
        del name
        return self.keys

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Equal weights of the lowest and of the highest total."""
        del name
        return [self._settings([total / self.count] * self.count) for total in (self.low, self.high)]

    def cells(self, name: str, asked: Sequence[Term]) -> list[Cell]:
        """One: no condition may ask for weights."""
        del name, asked
        return [Cell(None, None)]

    def grid(self) -> tuple[Any, ...]:
        """Never called, see `not_posthoc`."""
        raise NotImplementedError

    def dimensions(self, name: str) -> dict[str, Dimension]:
        """The sticks that the weights are broken from, and their total where it is a range."""
        sticks = dict.fromkeys(self._sticks(name), Dimension("number", 0.0, 1.0))
        if self.low < self.high:
            return {_total_of(name): Dimension("number", self.low, self.high), **sticks}
        return sticks

    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """The weights."""
        whole = point.get(_total_of(name), self.low)
        return self._settings(weights_of(whole, [point[stick] for stick in self._sticks(name)]))

    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The sticks, and the total where it is a range."""
        weights = job.get(self.keys[0]) if self.size else [job.get(key) for key in self.keys]
        if (
            not isinstance(weights, list)
            or len(weights) != self.count
            or not all(isinstance(weight, (int, float)) and weight >= 0 for weight in weights)
        ):
            raise Misfit(f"{name} is {weights}, the space has {self.count} weights")
        whole = math.fsum(weights)
        if not self.low * (1 - CLOSE) <= whole <= self.high * (1 + CLOSE):
            raise Misfit(f"{name} adds up to {whole:g}, the space has {self.low:g} to {self.high:g}")
        found = dict(zip(self._sticks(name), sticks_of(weights), strict=True))
        if self.low < self.high:
            found[_total_of(name)] = min(max(whole, self.low), self.high)
        return found

    def description(self) -> dict[str, Any]:
        """Kind, range of the total, keys and number of weights."""
        ends = {"low": self.low, "high": self.high}
        return {"kind": "simplex", **ends, "keys": list(self.keys), "weights": self.count}

    def _settings(self, weights: list[float]) -> dict[str, Any]:
        if self.size is not None:
            return {self.keys[0]: weights}
        return dict(zip(self.keys, weights, strict=True))

    def _sticks(self, name: str) -> list[str]:
        return [f"{name}.stick{j}" for j in range(self.count - 1)]


def weights_of(total: float, sticks: Sequence[float]) -> list[float]:
    """One weight more than there are sticks; they add up to the total."""
    rest, found = total, []
    for pieces, stick in zip(range(len(sticks), 0, -1), sticks, strict=True):
        kept = stick ** (1 / pieces)
        found.append(rest * (1 - kept))
        rest *= kept
    return [*found, rest]


def sticks_of(weights: Sequence[float]) -> list[float]:
    """The sticks that these weights are broken from."""
    rests = [math.fsum(weights[j:]) for j in range(len(weights))]
    pieces = range(len(weights) - 1, 0, -1)
    return [
        (after / before) ** count if before > 0 else 1.0
        for before, after, count in zip(rests[:-1], rests[1:], pieces, strict=True)
    ]


def _total_of(name: str) -> str:
    return f"{name}.total"


def _written(place: Place, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or "total" not in value or set(value) - {"total", "with", "size"}:
        raise place.error("needs a total", value, _WRITTEN)
    return value


def _with(place: Place, written: Mapping[str, Any]) -> list[str]:
    keys = written.get("with", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise place.error("with lists keys of the job", keys)
    return keys


def _total(place: Place, total: Any) -> tuple[float, float]:
    if isinstance(total, list):
        low, high = read_range(place, total)
        if low < 0:
            raise place.error("weights are not negative", total)
        return float(low), float(high)
    if not is_number(total) or total <= 0:
        raise place.error("needs a total above 0", total, _WRITTEN)
    return float(total), float(total)
