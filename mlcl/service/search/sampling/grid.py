"""How many combinations a space has."""

from __future__ import annotations

from typing import Any

from mlcl.config import Space
from mlcl.config.space import cells, terms_of


def grid_size(space: Space) -> int | None:
    """Combinations of choices and whole numbers, each branch of `when` by itself; None: a continuum."""
    if any(parameter.domain.continuous for parameter in space.parameters):
        return None
    return _combinations(space, 0, {})


def _combinations(space: Space, position: int, settings: dict[str, Any]) -> int:
    """Those of the parameters from a position on, where the ones before it are set."""
    if position == len(space.parameters):
        return 1
    parameter = space.parameters[position]
    if not parameter.exists(settings):
        return _combinations(space, position + 1, settings)
    # Values between which no condition can tell have equally many combinations after them.
    return sum(
        (cell.count or 0) * _combinations(space, position + 1, {**settings, parameter.name: cell.value})
        for cell in cells(parameter, terms_of(space.parameters))
    )
