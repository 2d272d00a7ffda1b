"""The branches of a space: the order of its parameters, and how the conditional ones are reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from typing import Any

from mlcl.config.space.condition import Term, covers
from mlcl.config.space.domain import Cell
from mlcl.config.space.space import Parameter


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
    """The parameter's values in groups: each of these terms holds for a whole group or for none of it."""
    asked = [term for term in terms if covers(parameter.name, term.key)]
    return parameter.domain.cells(parameter.name, asked)


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
