"""The branches of a space: the order of its parameters, and how the conditional ones are reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

from mlcl.config.space.condition import Term, covers
from mlcl.config.space.domains import Choice, Float, Int, Parameter


@dataclass(frozen=True)
class Cell:
    """Values of a parameter between which no condition can tell: one of them, and how many there are."""

    value: Any
    count: int | None
    """None: a continuum."""


def needs(parameter: Parameter, others: Iterable[Parameter]) -> list[str]:
    """Names of the parameters that must be drawn before this one.

    Those in its condition, and those that set a whole section in which it lies.
    """
    terms = parameter.condition.terms if parameter.condition else ()
    return [
        other.name
        for other in others
        if any(covers(other.name, term.key) for term in terms)
        or (other.name != parameter.name and any(covers(other.name, key) for key in parameter.keys))
    ]


def in_order(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Each parameter after those that it needs. Raises graphlib.CycleError."""
    by_name = {parameter.name: parameter for parameter in parameters}
    order = TopologicalSorter({p.name: needs(p, parameters) for p in parameters}).static_order()
    return tuple(by_name[name] for name in order)


def terms_of(parameters: Iterable[Parameter]) -> list[Term]:
    """All terms of all conditions."""
    return [term for p in parameters if p.condition for term in p.condition.terms]


def cells(parameter: Parameter, terms: Iterable[Term]) -> list[Cell]:
    """What the parameter may be, as far as these terms can tell.

    A single value of a continuous range has no cell: it is never drawn.
    """
    domain, asked = parameter.domain, [term for term in terms if covers(parameter.name, term.key)]
    if isinstance(domain, Choice):
        groups: dict[tuple[bool, ...], list[Any]] = {}
        for value in domain.values:
            groups.setdefault(tuple(t.holds({parameter.name: value}) for t in asked), []).append(value)
        return [Cell(values[0], len(values)) for values in groups.values()]
    if isinstance(domain, Int):
        cuts = {cut for cut in _whole_cuts(asked) if domain.low < cut <= domain.high}
        edges = [domain.low, *sorted(cuts), domain.high + 1]
        return [Cell(low, high - low) for low, high in pairwise(edges)]
    if isinstance(domain, Float):
        bounds = {x for term in asked for x in (term.above, term.below) if x is not None}
        inside = sorted(x for x in bounds if domain.low < x < domain.high)
        return [Cell((low + high) / 2, None) for low, high in pairwise([domain.low, *inside, domain.high])]
    return [Cell(None, None)]


def _whole_cuts(terms: Iterable[Term]) -> list[int]:
    """Where a run of whole numbers must be cut, so that each term holds for all of a piece or for none."""
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


def branch_to(target: Parameter, parameters: Sequence[Parameter]) -> dict[str, Any] | None:
    """Settings under which `target` exists, of the parameters that decide it; None: it never does."""
    wanted = {target.name}
    for parameter in reversed(parameters):
        if parameter.name in wanted:
            wanted.update(needs(parameter, parameters))
    deciding = [p for p in parameters if p.name in wanted and p is not target]
    terms = terms_of(parameters)

    def search(position: int, settings: dict[str, Any]) -> dict[str, Any] | None:
        if position == len(deciding):
            return settings if target.exists(settings) else None
        parameter = deciding[position]
        if not parameter.exists(settings):
            return search(position + 1, settings)
        tries = (
            search(position + 1, {**settings, parameter.name: cell.value}) for cell in cells(parameter, terms)
        )
        return next((found for found in tries if found is not None), None)

    return search(0, {})
