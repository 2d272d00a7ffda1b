"""From an entry of the space file to a domain: `float`, `log_float`, `int`, `choice` and `simplex`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.space.domains import Choice, Float, Int, Simplex
from mlcl.config.space.error_location import Place
from mlcl.errors import nearest

KINDS = ("float", "log_float", "int", "choice", "simplex")
POSTHOC_POINTS = 21
"""Points that a continuous post-hoc range is scored at."""
_WEIGHTS = "{total: 1.0} or {total: [low, high]}, with: [keys] or size: n besides"


@dataclass(frozen=True)
class Entry:
    """One entry of the space file: a pattern of keys, its kind, and the condition as written."""

    place: Place
    pattern: str
    kind: str
    value: Any
    when: Any = None

    @classmethod
    def read(cls, file: str | Path, pattern: str, spec: Mapping[str, Any]) -> Entry:
        """The entry, of which the kind is checked. Raises UserError."""
        place = Place(file, f"space.{pattern}")
        kinds = [key for key in spec if key != "when"]
        if len(kinds) != 1:
            raise place.error("give exactly one kind", kinds, KINDS)
        kind = kinds[0]
        if kind not in KINDS:
            near = nearest(kind, KINDS)
            raise place.error(f"unknown kind{f'; did you mean {near}?' if near else ''}", kind, KINDS)
        if "when" in spec and (not isinstance(spec["when"], Mapping) or not spec["when"]):
            raise place.error("when needs a key and its values", spec["when"], "when: {key: [values]}")
        return cls(place, pattern, kind, spec[kind], spec.get("when"))

    def domain(self) -> Float | Int | Choice:
        """The domain of one key. Raises UserError."""
        if self.kind == "choice":
            return Choice(distinct(self.place, self.value))
        low, high = read_range(self.place, self.value, whole=self.kind == "int")
        if self.kind == "int":
            return Int(int(low), int(high))
        if self.kind == "log_float" and low <= 0:
            raise self.place.error("a logarithmic range starts above 0", self.value)
        return Float(float(low), float(high), log=self.kind == "log_float")

    def simplex(self, keys: tuple[str, ...]) -> Simplex:
        """Weights for these keys. Raises UserError."""
        size = self._weights.get("size")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 2):
            raise self.place.error("size is how many weights the list has", size, "2 or more")
        if size is not None and self.shared:
            raise self.place.error("weights are either a list of a size or with other keys, not both")
        return Simplex(keys, *self._total(), size)

    @property
    def shared(self) -> list[str]:
        """The keys that share the weights of a simplex besides those of the pattern."""
        with_ = self._weights.get("with", [])
        if not isinstance(with_, list) or not all(isinstance(key, str) for key in with_):
            raise self.place.error("with lists keys of the job", with_)
        return with_

    @property
    def sections(self) -> list[Mapping[str, Any]]:
        """The values of a choice that are whole sections."""
        values = self.value if self.kind == "choice" and isinstance(self.value, list) else []
        return [value for value in values if isinstance(value, Mapping)]

    @property
    def sized(self) -> bool:
        """Whether each key gets a list of weights, instead of one weight."""
        return self._weights.get("size") is not None

    @property
    def _weights(self) -> Mapping[str, Any]:
        value = self.value
        if not isinstance(value, Mapping) or "total" not in value or set(value) - {"total", "with", "size"}:
            raise self.place.error("needs a total", value, _WEIGHTS)
        return value

    def _total(self) -> tuple[float, float]:
        total = self._weights["total"]
        if isinstance(total, list):
            low, high = read_range(self.place, total)
            if low < 0:
                raise self.place.error("weights are not negative", total)
            return float(low), float(high)
        if not is_number(total) or total <= 0:
            raise self.place.error("needs a total above 0", total, _WEIGHTS)
        return float(total), float(total)

    def grid(self) -> tuple[Any, ...]:
        """The values at which a post-hoc key is scored. Raises UserError."""
        if self.kind == "simplex":
            raise self.place.error("not a set of weights", self.kind, KINDS[:-1])
        if self.when is not None:
            raise self.place.error(
                "has no condition: it is not drawn, every trial is scored at all its values", self.when
            )
        domain = self.domain()
        if isinstance(domain, Choice):
            return domain.values
        if isinstance(domain, Int):
            count = min(POSTHOC_POINTS, domain.high - domain.low + 1)
            step = (domain.high - domain.low) / (count - 1)
            return tuple(round(domain.low + i * step) for i in range(count))
        low, high = (math.log(domain.low), math.log(domain.high)) if domain.log else (domain.low, domain.high)
        points = (low + (high - low) * i / (POSTHOC_POINTS - 1) for i in range(POSTHOC_POINTS))
        return tuple(round(math.exp(x) if domain.log else x, 9) for x in points)


def distinct(place: Place, values: Any) -> tuple[Any, ...]:
    """The values of a choice. Raises UserError for none or a repeated one."""
    if not isinstance(values, (list, tuple)) or not values or len(set(map(repr, values))) < len(values):
        raise place.error("not a list of distinct values", values)
    return tuple(values)


def read_range(place: Place, value: Any, *, whole: bool = False) -> tuple[float, float]:
    """The ends of a range. Raises UserError."""
    numbers = value if isinstance(value, (list, tuple)) else ()
    good = len(numbers) == 2 and all(map(is_number, numbers))
    if not good or (whole and any(x != int(x) for x in numbers)) or not numbers[0] < numbers[1]:
        raise place.error("not a range", value, "[low, high] with low < high")
    return numbers[0], numbers[1]


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
