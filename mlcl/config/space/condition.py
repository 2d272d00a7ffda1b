"""`when`: the condition under which a parameter exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Term:
    """One key and what it must be: one of `values`, or a number between `above` and `below`."""

    key: str
    values: tuple[Any, ...] = ()
    above: float | None = None
    below: float | None = None
    otherwise: Any = None
    """The job's own value, which counts where nothing has been drawn for the key."""

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether it holds where these settings have been drawn."""
        value = setting_of(settings, self.key, self.otherwise)
        if self.values:
            return any(same(value, each) for each in self.values)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)

    def __str__(self) -> str:
        if self.values:
            return f"{self.key} is {' or '.join(map(str, self.values))}"
        bounds = {"above": self.above, "below": self.below}
        limits = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
        return f"{self.key} is {limits}"


@dataclass(frozen=True)
class Condition:
    """Terms that must all hold."""

    terms: tuple[Term, ...]

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether all terms hold."""
        return all(term.holds(settings) for term in self.terms)

    def __str__(self) -> str:
        return ", ".join(map(str, self.terms))


def covers(outer: str, key: str) -> bool:
    """Whether `key` is `outer` or lies below it."""
    return key == outer or key.startswith(f"{outer}.")


def same(one: object, other: object) -> bool:
    """Equal, where 1 is 1.0 but not True."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def setting_of(settings: Mapping[str, Any], key: str, otherwise: Any) -> Any:
    """The setting of a key, also where it lies within the setting of a whole section."""
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        outer = ".".join(parts[:depth])
        if outer in settings:
            value = settings[outer]
            for part in parts[depth:]:
                value = value.get(part) if isinstance(value, Mapping) else None
            return value
    return otherwise
