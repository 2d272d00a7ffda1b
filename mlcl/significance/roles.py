"""Roles of arms in a comparison, and the names of their metrics."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from enum import Flag, auto


class Role(Flag):
    """The role of an arm and its settings in a comparison. The control is a baseline, too."""

    MODEL = auto()
    BASELINE = auto()
    CONTROL = auto()

    @classmethod
    def named(cls, names: Iterable[str]) -> Role:
        """The roles with these names in lower case. Raises KeyError for another name."""
        role = cls(0)
        for name in names:
            role |= cls[name.upper()]
        return role


def figure_name(score: str, metrics: Container[str]) -> str:
    """The score's name among the metrics of a run: a baseline has no neighbours, and is scored without."""
    return score if score in metrics else re.sub(r"^knn(_best)?/", "", score)
