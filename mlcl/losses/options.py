"""The options of a loss: their defaults and the values that they take, read from a function's signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from mlcl.errors import did_you_mean


@dataclass(frozen=True)
class Interval:
    """Finite numbers from `low` (left out with `open_low`) to `high`; `optional` takes None besides."""

    low: float
    high: float = math.inf
    open_low: bool = False
    optional: bool = False

    def __contains__(self, value: object) -> bool:
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (self.low < value or (value == self.low and not self.open_low)) and value <= self.high

    def __str__(self) -> str:
        start = f"a number {'above' if self.open_low else 'from'} {self.low:g}"
        return start if self.high == math.inf else f"{start} to {self.high:g}"


class LevelNumbers:
    """The words `exp` and `uniform`, or one finite number from 0 for each level of a path, not all 0."""

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str):
            return value in ("exp", "uniform")
        if not isinstance(value, (list, tuple)) or not value:
            return False
        return all(each in Interval(0) for each in value) and any(each > 0 for each in value)

    def __str__(self) -> str:
        return "exp, uniform, a list of numbers from 0, one a level"


@dataclass(frozen=True)
class Option:
    """One option of a loss: its default and the values it takes."""

    default: object
    allowed: tuple[object, ...] | Interval | LevelNumbers

    def accepts(self, value: object) -> bool:
        """Whether the value is allowed; of the same type too, so that 1 is not True."""
        if isinstance(self.allowed, (Interval, LevelNumbers)):
            return value in self.allowed
        return any(type(value) is type(each) and value == each for each in self.allowed)


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """The keyword-only parameters that have a default, as options.

    `Literal` gives the words that are allowed, `bool` a flag, `Annotated[..., Interval(...)]` a number.
    Raises TypeError for any other hint.
    """
    hints = get_type_hints(function, include_extras=True)
    return {
        name: Option(parameter.default, _allowed(function, name, hints.get(name)))
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is not Parameter.empty
    }


def _allowed(
    function: Callable[..., Any], name: str, hint: Any
) -> tuple[object, ...] | Interval | LevelNumbers:
    if hint is bool:
        return (True, False)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is Annotated:
        for bound in hint.__metadata__:
            if isinstance(bound, (Interval, LevelNumbers)):
                return bound
    raise TypeError(
        f"option {name} of {function.__name__}; found: {hint}; "
        "allowed: Literal, bool, Annotated with an Interval"
    )


def in_words(allowed: Iterable[object] | Interval | LevelNumbers) -> str:
    """Allowed values for a message."""
    if isinstance(allowed, (Interval, LevelNumbers)):
        return str(allowed)
    return ", ".join(str(value) for value in allowed)


def unknown(problem: str, name: str, names: Iterable[str]) -> str:
    """A message for an unknown name: what is wrong, the nearest name, and all of them."""
    known = list(names)
    return f"{problem}{did_you_mean(str(name), known)}; allowed: {in_words(known) or 'none'}"
