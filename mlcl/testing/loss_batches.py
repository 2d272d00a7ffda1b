"""Builds batches with the edge cases of every kind of label, and the cases in which a loss is tested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlcl.labels import LabelRows
from mlcl.losses import LOSSES, Interval, LossSpec
from mlcl.losses.labels import Labels
from mlcl.losses.spec import Allowed, LevelNumbers

Case = tuple[str, dict[str, Any]]
"""The name of a loss, and its options."""
Path = tuple[int, ...]
"""A path in a class hierarchy: the class at each level, the coarsest first; -1 is unknown."""
PATHS: list[Path] = [(-1, -1, -1), (0, 0, -1), (0, 0, 0), (0, 0, 0), (0, 1, 2), (1, 2, 3), (1, -1, -1)]
"""Paths that are unknown from the root, the middle or the last level on, or fully known; two are equal."""


@dataclass(frozen=True)
class LossBatch:
    """A batch of B rows (several views of each sample), with every kind of label as plain Python objects.

    `z` (B, dim) is float64. Each row has a set of labels below `width`, a class (-1 is unknown), ratings, a
    path or a set of paths, and the sample that it is a view of.
    """

    z: Tensor
    sets: list[frozenset[int]]
    classes: list[int]
    ratings: list[list[int]]
    paths: list[Path] | list[frozenset[Path]]
    samples: list[int]
    width: int

    def labels(self, loss: str) -> Labels | None:
        """Returns the labels in the form that the loss takes; None for a loss that uses only sample ids."""
        kind, values = LOSSES[loss].labels, self.plain_labels(loss)
        if kind == "multi_label":
            return LabelRows.from_lists([sorted(labels) for labels in self.sets], self.width)
        if kind == "none":
            return None
        if kind == "path" and isinstance(self.paths[0], frozenset):
            return node_rows(values)
        return torch.tensor(values, dtype=torch.float32 if kind == "ratings" else torch.int64)

    def sample_ids(self) -> Tensor:
        """Returns the id of the sample of each row, (B,) int64."""
        return torch.tensor(self.samples)

    def plain_labels(self, loss: str) -> list[Any]:
        """Returns the label of each row, in plain Python, of the kind that the loss uses."""
        labels_by_kind: dict[str, list[Any]] = {
            "class": self.classes,
            "multi_label": self.sets,
            "ratings": self.ratings,
            "path": self.paths,
            "none": self.samples,
        }
        return labels_by_kind[LOSSES[loss].labels]


def loss_batch(
    samples: int = 7,
    views: int = 2,
    dim: int = 5,
    width: int = 6,
    seed: int = 0,
    several_paths: bool = False,
) -> LossBatch:
    """Returns a random batch. Sample 0 has no labels, and sample 1 a label that no other sample has.

    With `several_paths` each row has a set of up to three of `PATHS`, else one path.
    """
    g = torch.Generator().manual_seed(seed)
    sets = [frozenset(torch.randperm(width - 1, generator=g)[: 1 + n % 3].tolist()) for n in range(samples)]
    sets[0], sets[1] = frozenset(), frozenset({width - 1})
    classes = [-1, *torch.randint(0, 3, (samples - 1,), generator=g).tolist()]
    ratings = torch.randint(0, 4, (samples, 4), generator=g).tolist()
    ratings[0] = [0, 0, 0, 0]
    order = torch.arange(samples).repeat(views).tolist()
    z = torch.randn(samples * views, dim, dtype=torch.float64, generator=g)
    paths: Any = PATHS
    if several_paths:
        paths = [frozenset(PATHS[: 1 + n % 3] if n % 2 else PATHS[n : n + 1 + n % 3]) for n in range(samples)]
    return LossBatch(
        z,
        [sets[n] for n in order],
        [classes[n] for n in order],
        [ratings[n] for n in order],
        [paths[n % len(paths)] for n in order],
        order,
        width,
    )


def node_rows(paths: Sequence[frozenset[Path]]) -> LabelRows:
    """Returns, as labels with levels, the nodes on each row's paths, up to the first unknown class."""
    rows = [{path[:end] for path in row for end in range(1, known_levels(path) + 1)} for row in paths]
    nodes = sorted(set().union(*rows))
    levels = []
    for level in range(max(len(path) for row in paths for path in row)):
        level_nodes = [node for node in nodes if len(node) == level + 1]
        lists = [[level_nodes.index(node) for node in row if node in level_nodes] for row in rows]
        levels.append(LabelRows.from_lists(lists, len(level_nodes)))
    return LabelRows.of_levels(levels)


def known_levels(path: Path) -> int:
    """Returns the number of levels of a path before the first unknown one."""
    return next((level for level, label in enumerate(path) if label < 0), len(path))


def take(labels: Labels | None, rows: Tensor) -> Labels | None:
    """Returns the labels of the rows with these indices; None for None."""
    return None if labels is None else labels[rows]


def cases_of(names: Iterable[str], extra_cases: Iterable[Case] = ()) -> list[Case]:
    """Returns the cases of each loss: its defaults, and each option changed alone to other allowed values.

    `extra_cases` are further cases, such as two options that only make sense together.
    """
    cases = [(name, options) for name in names for options in _single_changes(LOSSES[name])]
    return cases + [case for case in extra_cases if case not in cases]


def case_id(case: Case) -> str:
    """Returns the id of a case for pytest: `LOSS-OPTION=VALUE`."""
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def _single_changes(spec: LossSpec) -> Iterator[dict[str, Any]]:
    yield {}
    for name, option in spec.options.items():
        for value in _option_values(option.allowed):
            if value != option.default and _is_allowed(spec, {name: value}):
                yield {name: value}


def _option_values(allowed: Allowed) -> tuple[object, ...]:
    if isinstance(allowed, Interval):
        return (allowed.low + 0.3 * (min(allowed.high, allowed.low + 2) - allowed.low),)
    return ("uniform", (0.5, 2.0, 1.0)) if isinstance(allowed, LevelNumbers) else allowed


def _is_allowed(spec: LossSpec, options: dict[str, Any]) -> bool:
    try:
        spec.resolve(options)
    except ValueError:
        return False
    return True
