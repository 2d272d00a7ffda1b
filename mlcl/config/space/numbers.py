"""Numbers in a space file, and where a range must be cut for conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlcl.config.space.domain import Misfit
from mlcl.config.space.error_location import Place

POSTHOC_POINTS = 21
"""Points that a range is scored at where its key is answered after training."""


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def read_range(place: Place, value: Any, *, whole: bool = False) -> tuple[float, float]:
    """The ends of a range. Raises UserError."""
    numbers = value if isinstance(value, (list, tuple)) else ()
    good = len(numbers) == 2 and all(map(is_number, numbers))
    if not good or (whole and any(x != int(x) for x in numbers)) or not numbers[0] < numbers[1]:
        raise place.error("not a range", value, "[low, high] with low < high")
    return numbers[0], numbers[1]


def number_of(
    name: str, job: Mapping[str, Any], low: float, high: float, *, whole: bool = False
) -> int | float:
    """The number that a flat job has for a key. Raises Misfit where it is not one of this range."""
    value = job.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        if not whole:
            return float(value)
        if value == int(value):
            return int(value)
    raise Misfit(f"{name} is {value}, the space has {low:g} to {high:g}")
