"""Declarations of losses: the rule of a loss, the labels it reads, its options, similarity and source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin

from torch import Tensor
from typing_extensions import get_type_hints  # in 3.10, that of typing adds Optional for None defaults

from mlcl.errors import did_you_mean
from mlcl.losses.dense import Similarity, Weighting, weighting_of
from mlcl.losses.sets import LabelSets
from mlcl.losses.weights.base import BatchRanks, PairWeights

LabelKind = Literal["none", "class", "multi_label", "ratings", "path"]


@dataclass(frozen=True)
class Interval:
    """The allowed values of an option that is a number: finite numbers from `low` to `high`.

    Attributes:
        low: The smallest number; not allowed itself with `open_low`.
        high: The largest number.
        open_low: Whether `low` is excluded.
        optional: Whether None is allowed too.
    """

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
    """The allowed weights of levels: `exp`, `uniform`, or a list of finite numbers >= 0, not all 0."""

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str):
            return value in ("exp", "uniform")
        if not isinstance(value, (list, tuple)) or not value:
            return False
        return all(number in Interval(0) for number in value) and any(number > 0 for number in value)

    def __str__(self) -> str:
        return "exp, uniform, a list of numbers from 0, one a level"


class Choices(tuple[object, ...]):
    """A list of all allowed values of an option; the type must match too, so that 1 is not True."""

    def __contains__(self, value: object) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in self)

    def __str__(self) -> str:
        return ", ".join(map(str, self))


Allowed = Choices | Interval | LevelNumbers


@dataclass(frozen=True)
class Option:
    """One option of a loss: its default and its allowed values."""

    default: object
    allowed: Allowed


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Reads options from a function's keyword-only parameters that have a default.

    The annotation defines the allowed values: those of `Literal`, a flag for `bool`, and the bounds of
    `Annotated[..., Interval(...)]` or `Annotated[..., LevelNumbers()]`.

    Raises:
        TypeError: For any other annotation, and for a keyword-only parameter without a default, except
            `prototypes`, which the loss passes itself.
    """
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        required = (parameter.kind, parameter.default) == (Parameter.KEYWORD_ONLY, Parameter.empty)
        if required and name != "prototypes":
            raise TypeError(f"option {name} of {function.__name__}; found: no default; allowed: {name}=VALUE")
    return {
        name: Option(parameter.default, _allowed_values(function, name, hints.get(name)))
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is not Parameter.empty
    }


def _allowed_values(function: Callable[..., Any], name: str, hint: Any) -> Allowed:
    if hint is bool:
        return Choices((True, False))
    if get_origin(hint) is Literal:
        return Choices(get_args(hint))
    if get_origin(hint) is Annotated:
        for bound in hint.__metadata__:
            if isinstance(bound, (Interval, LevelNumbers)):
                return bound
    raise TypeError(
        f"option {name} of {function.__name__}; found: {hint}; "
        "allowed: Literal, bool, Annotated with an Interval"
    )


def unknown_name(problem: str, name: str, names: Iterable[str]) -> str:
    """Returns a message for an unknown name: the problem, the most similar known name, and all of them."""
    known_names = list(names)
    return f"{problem}{did_you_mean(str(name), known_names)}; allowed: {', '.join(known_names) or 'none'}"


FROM_SIGNATURE: Mapping[str, Option] = MappingProxyType({})
"""The default of `LossSpec.options`: the options are read from the signature of `dense`."""


@dataclass(frozen=True, kw_only=True)
class LossSpec:
    """Declares a loss as a value at the top of a module of `mlcl.losses.rules`, or of a plugin.

    Attributes:
        name: The name of the loss in a job.
        labels: The kind of labels that the loss reads; `to_rule` converts given labels to this kind.
        summary: One line on what the loss does.
        source: Where the loss was published.
        year: The year in which it was published; None if it was not.
        dense: The definition, a function `dense(labels, anchors, dtype, **options)` that returns the weights
            W (N, B) of a slice of N anchors, 0 or more, as a tensor or a `Weighting`. It gets the labels of
            all processes' rows, this process's own first, and the own rows as anchors, so a row of W must
            depend on nothing but the labels.
        closed: Optional, a function `closed(labels, ranks, **options)` that returns the same weights for the
            tiled engine, as `PairWeights` of the `ranks.own` first rows, in `ranks.dtype`; `ranks` exchanges
            values with other processes. Without it the loss needs memory for the N x B matrix W.
        options: The options; by default those of `dense`'s signature, see `options_of`.
        similarity: The dot product, or minus the Euclidean distance.
        conflict: A function that raises ValueError for options that exclude each other.
        terms: For a loss that is no sum of W_ip (-log p_ip), a function `terms(logit, labels, **options)`
            that returns the anchors' terms (B,) given the logits s_ip / tau (B, B), with prototypes (B, B +
            L). The entry of a row with itself has no meaning.
        prototypes: Whether the loss may have one learned prototype for each label, which is a further
            candidate of every anchor. `dense` and `closed` then take a keyword `prototypes`, which says
            whether there are any, and the weights may have a `repulsion`. Such a loss cannot share its
            softmax with another loss.
        own_softmax: Whether the weights exclude candidates or change logits, see `PairWeights`. Such a loss
            cannot share its softmax with another loss either.
        queue: Whether the loss takes the rows of a queue. They are the last `ranks.queued` ones of all, and
            no anchors: their rows of W are 0 in the weights of `closed`.
        on_host: Whether `closed` may get labels in the host's memory although the embeddings are on another
            device, so that the host prepares the weights while the device encodes. The tensors of the weights
            must then be on `ranks.device`, or their method `to` must move all of them.

    Example:
        >>> def same_class(class_B, anchors, dtype):
        ...     return (class_B[anchors, None] == class_B).to(dtype)
        >>> SAME = LossSpec(name="same", labels="class", summary="equal classes attract",
        ...                 source="an example", dense=same_class)
    """

    name: str
    labels: LabelKind
    summary: str
    source: str
    dense: Callable[..., Tensor | Weighting] = field(repr=False)
    closed: Callable[..., PairWeights] | None = field(default=None, repr=False)
    options: Mapping[str, Option] = field(default_factory=lambda: FROM_SIGNATURE)
    similarity: Similarity = "dot"
    conflict: Callable[[Mapping[str, Any]], None] | None = field(default=None, repr=False)
    terms: Callable[..., Tensor] | None = field(default=None, repr=False)
    year: int | None = None
    prototypes: bool = False
    own_softmax: bool = False
    queue: bool = False
    on_host: bool = False

    def __post_init__(self) -> None:
        if self.options is FROM_SIGNATURE:
            object.__setattr__(self, "options", options_of(self.dense))

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Checks options and fills in defaults.

        Raises:
            ValueError: For an unknown option, a value that is not allowed, and options that exclude each
                other, with what was found and what is allowed.
        """
        for name, value in given.items():
            if name not in self.options:
                raise ValueError(unknown_name(f"{self.name} has no option {name!r}", name, self.options))
            option = self.options[name]
            if value not in option.allowed:
                raise ValueError(f"option {name} of {self.name}; found: {value!r}; allowed: {option.allowed}")
        values = {name: given.get(name, option.default) for name, option in self.options.items()}
        if self.conflict is not None:
            self.conflict(values)
        return values

    def arguments(self, options: Mapping[str, Any], *, prototypes: bool = False) -> dict[str, Any]:
        """Returns the keyword arguments of `dense` and `closed` for resolved options."""
        return {**options, "prototypes": prototypes} if self.prototypes else dict(options)

    def weighting(self, labels: Any, anchors: slice, dtype: Any, arguments: Mapping[str, Any]) -> Weighting:
        """Calls `dense` with these keyword arguments, and returns W as a `Weighting`."""
        weights = self.dense(labels, anchors, dtype, **arguments)
        return weights if isinstance(weights, Weighting) else weighting_of(weights.to(dtype), anchors)


class WeightRule(Protocol):
    """A rule that computes the weights from label sets: as a matrix, and for the tiled engine."""

    def dense(self, sets: LabelSets, anchors: slice, dtype: Any, /) -> Weighting:
        """Returns the weights W (N, B) of the anchors."""

    def closed(self, sets: LabelSets, ranks: BatchRanks, /) -> PairWeights:
        """Returns the weights in closed form."""


def overlap_loss(
    name: str, rule: Callable[..., WeightRule], *, labels: LabelKind = "multi_label", **spec: Any
) -> LossSpec:
    """Declares a loss whose weights depend on the overlap of two label sets, with dense and closed form.

    `rule` is a function that returns the `OverlapRule`, or another `WeightRule`; its keyword-only parameters
    are the options. The other arguments are those of `LossSpec`.

    Raises:
        TypeError: `rule` has another parameter, or one that `options_of` refuses.

    Example:
        >>> def dice_rule():
        ...     def dice(counts):
        ...         return 2 * counts.shared / (counts.anchor_size + counts.candidate_size)
        ...     return OverlapRule(dice, symmetric=True)
        >>> DICE = overlap_loss("dice", dice_rule, summary="by the Dice coefficient", source="Dice 1945")
    """
    for parameter in signature(rule).parameters.values():
        if parameter.kind is not Parameter.KEYWORD_ONLY:
            name = parameter.name
            raise TypeError(f"option {name} of {rule.__name__}; found: {parameter}; allowed: *, {name}=VALUE")
    return LossSpec(
        name=name,
        labels=labels,
        dense=partial(_overlap_dense, rule),
        closed=partial(_overlap_closed, rule),
        options=options_of(rule),
        queue=True,
        on_host=True,
        **spec,
    )


def _overlap_dense(rule: Callable[..., WeightRule], *arguments: Any, **options: Any) -> Weighting:
    return rule(**options).dense(*arguments)


def _overlap_closed(rule: Callable[..., WeightRule], *arguments: Any, **options: Any) -> PairWeights:
    return rule(**options).closed(*arguments)
