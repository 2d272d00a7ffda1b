"""What a loss is made of: its rule, the labels it reads, its options, its similarity and its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from mlcl.losses.options import Option, in_words, options_of, unknown
from mlcl.losses.weighting import Weighting, of_matrix
from mlcl.losses.weights.base import PairWeights
from mlcl.losses.weights.overlap import OverlapRule

LabelKind = Literal["none", "class", "multi_label", "ratings", "path"]
Similarity = Literal["dot", "euclidean"]
FROM_SIGNATURE: Mapping[str, Option] = MappingProxyType({})
"""Stands for the options that the signature of `dense` has."""


def no_conflict(_options: Mapping[str, Any]) -> None:
    """The check of a loss whose options are free of each other."""


@dataclass(frozen=True, kw_only=True)
class LossSpec:
    """A loss, declared: a module of `mlcl.losses.rules`, or one from outside, has it as a value.

    `name` is what a job calls it, `summary` one line on what it does, `source` where it was published.

    `dense(labels, anchors, dtype, **options)` defines it: the weights W (N, B) of a slice of N anchors, 0 or
    more, as a tensor or a `Weighting`. The labels are those of all B rows in the form that `labels` names
    (`to_rule`), this process's own first. It is called with the own rows as anchors and the labels of all
    processes, so a row of W must depend on nothing but the labels.

    `closed(labels, own, ranks, dtype, **options)`, optional, is the same for the tiled engine: the
    `PairWeights` of the `own` first rows, with `ranks` to learn a value of other processes' rows. Without it
    a loss takes memory for W, N x B. With `on_host` it gets labels where the caller has them, in the host's
    memory too, whatever device embeddings are on, and gives weights of which `to` moves all tensors, or that
    are on `ranks.device` already: the host can prepare them while the device encodes.

    `options` are by default those of `dense`'s signature, see `options_of`; `conflict` raises ValueError for
    options that exclude each other. `similarity` is the dot product or minus the Euclidean distance. Where
    the weights depend on the embeddings too, `terms(loss, labels, **options)` defines the anchors' terms (B,)
    by pair losses (B, B).

    With `prototypes` the loss may have one learned prototype a label, a further candidate of every anchor.
    Its functions then take a keyword `prototypes`, whether there are any, and its weights may have a
    `repulsion`; it shares its softmax with no other loss.
    """

    name: str
    labels: LabelKind
    summary: str
    source: str
    dense: Callable[..., Tensor | Weighting] = field(repr=False)
    closed: Callable[..., PairWeights] | None = field(default=None, repr=False)
    options: Mapping[str, Option] = field(default_factory=lambda: FROM_SIGNATURE)
    similarity: Similarity = "dot"
    conflict: Callable[[Mapping[str, Any]], None] = field(default=no_conflict, repr=False)
    terms: Callable[..., Tensor] | None = field(default=None, repr=False)
    prototypes: bool = False
    on_host: bool = False

    def __post_init__(self) -> None:
        if self.options is FROM_SIGNATURE:
            object.__setattr__(self, "options", options_of(self.dense))

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

    def arguments(self, options: Mapping[str, Any], *, prototypes: bool = False) -> dict[str, Any]:
        """The keywords of `dense` and `closed`. Options are resolved ones."""
        return {**options, "prototypes": prototypes} if self.prototypes else dict(options)

    def weighting(self, labels: Any, anchors: slice, dtype: Any, arguments: Mapping[str, Any]) -> Weighting:
        """W by its definition, with these keywords of `dense`."""
        found = self.dense(labels, anchors, dtype, **arguments)
        return found if isinstance(found, Weighting) else of_matrix(found.to(dtype), anchors)


def overlap_loss(
    name: str,
    rule: Callable[..., OverlapRule],
    *,
    summary: str,
    source: str,
    labels: LabelKind = "multi_label",
    similarity: Similarity = "dot",
    conflict: Callable[[Mapping[str, Any]], None] = no_conflict,
) -> LossSpec:
    """A loss whose weights follow from how two label sets overlap, closed form included.

    `rule` gives the `OverlapRule` for the options that its signature has.
    """
    return LossSpec(
        name=name,
        labels=labels,
        summary=summary,
        source=source,
        dense=_Overlap(rule).dense,
        closed=_Overlap(rule).closed,
        options=options_of(rule),
        similarity=similarity,
        conflict=conflict,
        on_host=True,
    )


@dataclass(frozen=True)
class _Overlap:
    """The two forms of a rule; a class, so that a loss can be sent to another process."""

    rule: Callable[..., OverlapRule]

    def dense(self, *arguments: Any, **options: Any) -> Weighting:
        return self.rule(**options).dense(*arguments)

    def closed(self, *arguments: Any, **options: Any) -> PairWeights:
        return self.rule(**options).closed(*arguments)
