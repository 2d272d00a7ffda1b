"""The branches of a space: how conditional parameters are reached, and settings at the ends of all ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, dump_job
from mlcl.config.loader import load_job
from mlcl.config.space.condition import Term, covers
from mlcl.config.space.domain import Cell
from mlcl.config.space.place import Place
from mlcl.config.space.space import Parameter, Space
from mlcl.errors import UserError


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


def corners(space: Space) -> list[dict[str, Any]]:
    """Overrides at the ends of all ranges, with every choice in turn and in every branch of `when`.

    Their number grows with the sum of what the parameters may be, not with its product.
    """
    found = [_filled(space, {}, 0), _filled(space, {}, -1), dict(space.posthoc)]
    for parameter in space.parameters:
        if parameter.condition is None and not parameter.domain.listed:
            continue
        branch = branch_to(parameter, space.parameters) or {}
        found += [_filled(space, {**branch, **end}, -1) for end in parameter.domain.ends(parameter.name)]
    return found


def _filled(space: Space, given: dict[str, Any], end: int) -> dict[str, Any]:
    """The given settings, and an end of all other parameters that then exist."""
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            chosen = {key: given[key] for key in parameter.keys if key in given}
            settings |= chosen or parameter.domain.ends(parameter.name)[end]
    return settings


def check_corners(space: Space, job: JobConfig, file: str | Path) -> None:
    """Every corner must make a valid job, so that no trial dies of its own settings. Raises UserError."""
    tree = dump_job(job)
    for corner in corners(space):
        try:
            load_job(tree, corner)
        except UserError as error:
            place = Place(file, f"space ({error.key})")
            raise place.error(
                f"leaves what the job allows: {error.problem}", error.found, error.allowed
            ) from None
