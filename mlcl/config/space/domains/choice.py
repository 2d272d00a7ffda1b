"""`choice: [a, b, ...]`: one of the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mlcl.config.job import flatten
from mlcl.config.space.condition import Term, covers, same
from mlcl.config.space.domain import Cell, Dimension, Domain, Misfit
from mlcl.config.space.place import Place


@dataclass(frozen=True)
class Choice(Domain):
    """One of the values."""

    kinds = ("choice",)
    listed = True

    values: tuple[Any, ...]

    @classmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """From a list of distinct values."""
        del kind, keys
        return cls(_distinct(place, value))

    def resolved(self, place: Place, resolve: Callable[[Any], Any]) -> Domain:
        """The values as the job has them, which must be distinct still."""
        return Choice(_distinct(place, [resolve(value) for value in self.values]))

    def ends(self, name: str) -> list[dict[str, Any]]:
        """Every value."""
        return [{name: value} for value in self.values]

    def cells(self, name: str, asked: Sequence[Term]) -> list[Cell]:
        """Groups of values for which the same terms hold."""
        groups: dict[tuple[bool, ...], list[Any]] = {}
        for value in self.values:
            groups.setdefault(tuple(term.holds({name: value}) for term in asked), []).append(value)
        return [Cell(values[0], len(values)) for values in groups.values()]

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
        """The position of the value that the job has.

        A section counts as chosen by the keys that it shares with a value; other parameters may vary more.
        """
        section = {key: value for key, value in job.items() if covers(name, key)}
        flat = [flatten({name: value}) for value in self.values]
        for position, value in enumerate(flat):
            if value.keys() == section.keys() and all(same(value[key], section[key]) for key in value):
                return {name: position}
        closest = max(range(len(flat)), key=lambda i: _shared(flat[i], section), default=0)
        if isinstance(self.values[closest], Mapping) and _shared(flat[closest], section):
            return {name: closest}
        found = section.get(name, section or None)
        raise Misfit(f"{name} is {found}, the space has {list(self.values)}")

    def description(self) -> dict[str, Any]:
        """Kind and values."""
        return {"kind": "choice", "values": list(self.values)}


def _distinct(place: Place, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)) or not values or len(set(map(repr, values))) < len(values):
        raise place.error("not a list of distinct values", values)
    return tuple(values)


def _shared(value: Mapping[str, Any], section: Mapping[str, Any]) -> int:
    return sum(key in section and same(value[key], section[key]) for key in value)
