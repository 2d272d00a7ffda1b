"""Roles of arms in a comparison, and the names under which their runs have a metric."""

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
    def from_names(cls, names: Iterable[str]) -> Role:
        """Returns the union of the roles with these lower-case names. Raises KeyError for any other name."""
        role = cls(0)
        for name in names:
            role |= cls[name.upper()]
        return role

    @property
    def names(self) -> tuple[str, ...]:
        """The lower-case names of the roles in this union."""
        return tuple(str(role.name).lower() for role in Role if role in self)


NOT_SHARES = ("loss", "coverage_error", "lca_distance", "labels_scored", "labels_scored_auc")
"""Metrics of a split whose values are no shares: losses, ranks, distances and numbers of labels."""


def is_share(metric: str) -> bool:
    """Whether a metric is a share, from 0 to 1, that was measured on the validation or the test split."""
    evaluated = any(f"/{split}/" in f"/{metric}" for split in ("val", "test"))
    return evaluated and not metric.endswith("seconds") and metric.rpartition("/")[2] not in NOT_SHARES


def by_split(metrics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns the metrics of the splits `val` and `test` by split, keyed by their name without the split."""
    by_name: dict[str, dict[str, str]] = {}
    for metric in sorted(metrics):
        parts = metric.split("/")
        for split in (name for name in ("val", "test") if name in parts):
            by_name.setdefault("/".join(part for part in parts if part != split), {})[split] = metric
    return by_name


def figure_name(score: str, metrics: Container[str]) -> str:
    """Returns `score` if `metrics` has it, else `score` without its `knn/`, `knn_best/` or `ensemble/`.

    A fitted baseline has no neighbours and no ensemble, so its runs have the score only without the prefix.
    """
    return score if score in metrics else re.sub(r"^(knn|knn_best|ensemble)/", "", score)
