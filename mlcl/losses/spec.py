"""What a loss is made of: its rule, the labels it reads, its options, its similarity and its source."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.losses.weighting import Weighting

LabelKind = Literal["none", "class", "multi_label", "ratings"]
Similarity = Literal["dot", "euclidean"]
WeighRows = Callable[..., Weighting]


@dataclass(frozen=True)
class Option:
    """One option of a loss: its default, the values it takes in words, and the check."""

    default: object
    allowed: tuple[object, ...] | str
    accepts: Callable[[object], bool] = field(repr=False)


def choice(*values: str) -> Option:
    """An option that takes one of a few words; the first is the default."""
    return Option(values[0], values, lambda value: isinstance(value, str) and value in values)


def flag(default: bool) -> Option:
    """An option that is on or off."""
    return Option(default, (True, False), lambda value: isinstance(value, bool))


def number(
    default: float | None, allowed: str, low: float, high: float = math.inf, *, open_low: bool = False
) -> Option:
    """A finite number from `low` (left out with `open_low`) to `high`; None only where it is the default."""

    def accepts(value: object) -> bool:
        if value is None:
            return default is None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (low < value or (value == low and not open_low)) and value <= high

    return Option(default, allowed, accepts)


def no_conflict(_options: Mapping[str, Any]) -> None:
    """The check of a loss whose options are free of each other."""


@dataclass(frozen=True)
class LossSpec:
    """A loss by its parts.

    `weigh(labels, anchors, dtype, **options)` is the rule: labels of all B candidates, in the form that
    `labels` names, and the slice of them that are anchors, to a `Weighting`. `conflict` raises ValueError for
    options that exclude each other.
    """

    name: str
    labels: LabelKind
    source: str
    weigh: WeighRows = field(repr=False)
    options: Mapping[str, Option] = field(default_factory=dict)
    similarity: Similarity = "dot"
    conflict: Callable[[Mapping[str, Any]], None] = field(default=no_conflict, repr=False)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option's value, defaults filled in.

        Raises ValueError that names the option, what was found and what is allowed.
        """
        for name, value in given.items():
            if name not in self.options:
                raise ValueError(unknown(f"{self.name} has no option {name!r}", name, self.options))
            option = self.options[name]
            if not option.accepts(value):
                raise ValueError(
                    f"option {name} of {self.name}; found: {value!r}; allowed: {in_words(option.allowed)}"
                )
        values = {name: given.get(name, option.default) for name, option in self.options.items()}
        self.conflict(values)
        return values


def in_words(allowed: Iterable[object] | str) -> str:
    """Allowed values for a message."""
    return allowed if isinstance(allowed, str) else ", ".join(str(value) for value in allowed)


def unknown(problem: str, name: str, names: Iterable[str]) -> str:
    """A message for an unknown name: what is wrong, the nearest name, and all of them."""
    known = list(names)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{problem}{hint}; allowed: {in_words(known) or 'none'}"
