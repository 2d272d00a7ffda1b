"""Splits the seconds of a sweep into those of its trainings and those of its overhead."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

HEAD = (
    "| case | contender | first s | each further s | ours / it | target | training s | sweep s "
    "| ours / it |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Case:
    """The number of trainings at once, the processes of each, and the target for overhead of later ones."""

    name: str
    at_once: int
    workers: int
    target: float

    @property
    def cpus(self) -> float:
        """The CPUs of each process, chosen so that no more than `at_once` trainings fit."""
        return (os.cpu_count() or 1) / (self.at_once * self.workers)


@dataclass(frozen=True)
class Training:
    """The times at which the driver saw a training begin and end, the seconds of its own work, its score."""

    began: float
    ended: float
    own: float
    score: float


@dataclass(frozen=True)
class Sweep:
    """A sweep, from before its imports until everything was written; trainings in the order of settings."""

    began: float
    ended: float
    at_once: int
    trainings: tuple[Training, ...]

    @property
    def seconds(self) -> float:
        """The seconds from the sweep's start to its end."""
        return self.ended - self.began

    def overheads(self) -> tuple[list[float], list[float]]:
        """Returns the overhead of the first training in every slot, and of the other trainings, in seconds.

        A slot is free from the sweep's start, and from each end of a training. If trainings run one at a
        time, these overheads, the trainings' own seconds and the seconds after the last end add up to the
        sweep's seconds.
        """
        begun = sorted(self.trainings, key=lambda training: training.began)
        free = [self.began] * self.at_once + sorted(training.ended for training in begun)
        beyond = [each.ended - since - each.own for each, since in zip(begun, free, strict=False)]
        return beyond[: self.at_once], beyond[self.at_once :]


@dataclass
class Row:
    """The durations of a contender's sweeps of one case."""

    case: Case
    contender: str
    sweeps: list[Sweep] = field(default_factory=list)

    def first(self) -> float:
        """Returns the median overhead of a slot's first training, with imports and start of services."""
        return statistics.median(second for sweep in self.sweeps for second in sweep.overheads()[0])

    def further(self) -> tuple[float, float]:
        """Returns the median overhead of the other trainings, and half the distance between its quartiles."""
        beyond = [second for sweep in self.sweeps for second in sweep.overheads()[1]]
        if len(beyond) == 1:
            return beyond[0], 0.0
        low, middle, high = statistics.quantiles(beyond, n=4, method="inclusive")
        return middle, (high - low) / 2

    def whole(self) -> float:
        """Returns the median seconds of a sweep."""
        return statistics.median(sweep.seconds for sweep in self.sweeps)

    def line(self, ours: Row) -> str:
        """Returns the table's line, with the ratio of `ours` to this row."""
        (further, spread), target = self.further(), self.case.target
        verdict = f"{target:g}: {'met' if further <= target else 'NOT met'}"
        own = statistics.median(training.own for sweep in self.sweeps for training in sweep.trainings)
        cells = [
            self.case.name,
            self.contender,
            f"{self.first():.1f}",
            f"{further:.2f} ±{spread:.2f}",
            "-" if self is ours else f"{ours.further()[0] / further:.2f}",
            verdict if self is ours else "-",
            f"{own:.2f}",
            f"{self.whole():.1f}",
            "-" if self is ours else f"{ours.whole() / self.whole():.2f}",
        ]
        return f"| {' | '.join(cells)} |"


def differences(rows: Sequence[Row]) -> list[str]:
    """Returns descriptions of trainings whose score differs from the first row's for equal settings."""
    ours, *peers = rows
    found = []
    for peer in peers:
        for mine, theirs in zip(ours.sweeps, peer.sweeps, strict=True):
            pairs = zip(mine.trainings, theirs.trainings, strict=True)
            for number, (one, other) in enumerate(pairs):
                if one.score != other.score:
                    at = f"{peer.case.name}, training {number}"
                    found.append(f"{at}: {ours.contender} {one.score}, {peer.contender} {other.score}")
    return found
