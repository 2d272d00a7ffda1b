"""Keys of a space file, to which errors belong, and the numbers that stand there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.errors import UserError


@dataclass(frozen=True)
class Place:
    """A key of a space file, to which its errors belong."""

    file: str | Path
    key: str

    def error(self, problem: str, found: object = None, allowed: object = None) -> UserError:
        """The error at this place."""
        return UserError(problem, file=self.file, key=self.key, found=found, allowed=allowed)


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
