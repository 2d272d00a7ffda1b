"""What a loss is made of: its rule, the labels it reads, its options, its similarity and its source."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor

from mlcl.losses.weighting import Weighting
from mlcl.losses.weights.base import PairWeights
from mlcl.losses.weights.overlap import OverlapRule

LabelKind = Literal["none", "class", "multi_label", "ratings", "path"]
Similarity = Literal["dot", "euclidean"]


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


def choice(*values: str) -> Option:
    """An option that takes one of a few words; the first is the default."""
    return Option(values[0], values)


def flag(default: bool) -> Option:
    """An option that is on or off."""
    return Option(default, (True, False))


def no_conflict(_options: Mapping[str, Any]) -> None:
    """The check of a loss whose options are free of each other."""


@dataclass(frozen=True)
class LossSpec:
    """A loss by its parts.

    A rule takes the labels of all B rows in the form that `labels` names (`to_rule`), the own rows first.
    `dense(labels, anchors, dtype, **options)` defines it: the `Weighting` (N, B) of a slice of anchors.
    `closed(labels, own, ranks, dtype, **options)` is the same for the tiled engine: the `PairWeights` of the
    `own` first rows, with `ranks` to learn a value of other processes' rows. Where the weights depend on the
    embeddings too, `terms(loss, labels, **options)` defines the anchors' terms (B,) by pair losses (B, B).
    With `prototypes` the loss may have one learned prototype a label, of which the rules are then told.
    `conflict` raises ValueError for options that exclude each other.
    """

    name: str
    labels: LabelKind
    source: str
    dense: Callable[..., Weighting] = field(repr=False)
    closed: Callable[..., PairWeights] = field(repr=False)
    options: Mapping[str, Option] = field(default_factory=dict)
    similarity: Similarity = "dot"
    conflict: Callable[[Mapping[str, Any]], None] = field(default=no_conflict, repr=False)
    terms: Callable[..., Tensor] | None = field(default=None, repr=False)
    prototypes: bool = False

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


def overlap_spec(
    name: str,
    labels: LabelKind,
    source: str,
    rule: Callable[..., OverlapRule],
    options: Mapping[str, Option] | None = None,
    similarity: Similarity = "dot",
    conflict: Callable[[Mapping[str, Any]], None] = no_conflict,
) -> LossSpec:
    """The spec of a loss whose weights follow from how two label sets overlap; `rule` takes its options."""

    dense, closed = partial(_dense_overlap, rule), partial(_closed_overlap, rule)
    return LossSpec(name, labels, source, dense, closed, options or {}, similarity, conflict)


def _dense_overlap(rule: Callable[..., OverlapRule], *arguments: Any, **options: Any) -> Weighting:
    return rule(**options).dense(*arguments)


def _closed_overlap(rule: Callable[..., OverlapRule], *arguments: Any, **options: Any) -> PairWeights:
    return rule(**options).closed(*arguments)


def in_words(allowed: Iterable[object] | Interval | LevelNumbers) -> str:
    """Allowed values for a message."""
    if isinstance(allowed, (Interval, LevelNumbers)):
        return str(allowed)
    return ", ".join(str(value) for value in allowed)


def unknown(problem: str, name: str, names: Iterable[str]) -> str:
    """A message for an unknown name: what is wrong, the nearest name, and all of them."""
    known = list(names)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{problem}{hint}; allowed: {in_words(known) or 'none'}"
