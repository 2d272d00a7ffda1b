"""Where the seconds of a sweep go: into its trainings, or around them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TARGETS = {"alone": 0.5, "packed": 0.5, "nested": 12.0}
"""The most seconds of overhead that a training of ours may have, but for the first ones, by case."""


@dataclass(frozen=True)
class Case:
    """Trainings at once, and the processes of each."""

    name: str
    at_once: int
    workers: int


@dataclass(frozen=True)
class Training:
    """When the driver saw it begin and end, the seconds that it trained and evaluated, what it scored."""

    began: float
    ended: float
    own: float
    score: float


@dataclass(frozen=True)
class Sweep:
    """One sweep, from before its imports until everything was written; trainings in the order of settings."""

    began: float
    ended: float
    at_once: int
    trainings: tuple[Training, ...]

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.ended - self.began

    def overheads(self) -> tuple[list[float], list[float]]:
        """Seconds beyond its own of each training: of the first in every slot, and of the others.

        A slot is free from the sweep's start, later from the end of the training before. With those after the
        last end, and the trainings' own, these seconds add up to all that the slots had.
        """
        ends = sorted(training.ended for training in self.trainings)
        free = [self.began] * self.at_once + ends
        begun = sorted(self.trainings, key=lambda training: training.began)
        beyond = [each.ended - since - each.own for each, since in zip(begun, free, strict=False)]
        return beyond[: self.at_once], beyond[self.at_once :]


@dataclass
class Row:
    """What a contender's sweeps of one case took."""

    case: Case
    contender: str
    sweeps: list[Sweep]

    def first(self) -> float:
        """The typical overhead of a slot's first training: with imports, and the start of Ray and MLflow."""
        return statistics.median(second for sweep in self.sweeps for second in sweep.overheads()[0])

    def rest(self) -> tuple[float, float]:
        """The typical overhead of the others, and half of the distance between its quartiles."""
        beyond = [second for sweep in self.sweeps for second in sweep.overheads()[1]]
        low, middle, high = statistics.quantiles(beyond, n=4, method="inclusive")
        return middle, (high - low) / 2

    def own(self) -> float:
        """The typical time of a training itself."""
        return statistics.median(training.own for sweep in self.sweeps for training in sweep.trainings)

    def whole(self) -> float:
        """The typical time of a sweep."""
        return statistics.median(sweep.seconds for sweep in self.sweeps)

    def met(self) -> bool:
        """Whether the others' overhead is within the target."""
        return self.rest()[0] <= TARGETS[self.case.name]


def table(rows: Sequence[Row], ours: str) -> list[str]:
    """Markdown, a line for each contender; the ratio is of `ours` to it."""
    lines = [
        "| case | contender | first s | each further s | ours / it | target | training s | sweep s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    of_ours = {row.case: row.rest()[0] for row in rows if row.contender == ours}
    for row in rows:
        rest, spread = row.rest()
        ratio, target = "-", "-"
        if row.contender == ours:
            target = f"{TARGETS[row.case.name]:g}: {'met' if row.met() else 'NOT met'}"
        elif row.case in of_ours:
            ratio = f"{of_ours[row.case] / rest:.2f}"
        lines.append(
            f"| {row.case.name} | {row.contender} | {row.first():.1f} | {rest:.2f} ±{spread:.2f} | {ratio} "
            f"| {target} | {row.own():.2f} | {row.whole():.1f} |"
        )
    return lines
