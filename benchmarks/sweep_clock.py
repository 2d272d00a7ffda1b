"""Where the seconds of a sweep go: into its trainings, or around them."""

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
    """Trainings at once, the processes of each, and the most seconds that a further one of ours may add."""

    name: str
    at_once: int
    workers: int
    target: float

    @property
    def cpus(self) -> float:
        """Of a process, so that no more than `at_once` trainings fit."""
        return (os.cpu_count() or 1) / (self.at_once * self.workers)


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
        """From its start to its end."""
        return self.ended - self.began

    def overheads(self) -> tuple[list[float], list[float]]:
        """Seconds beyond its own of each training: of the first in every slot, and of the others.

        A slot is free from the sweep's start, and from each end of a training. One at a time, these seconds,
        the trainings' own and those after the last end add up to the sweep's.
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
        """The median overhead of a slot's first training: with imports, and the start of Ray and MLflow."""
        return statistics.median(second for sweep in self.sweeps for second in sweep.overheads()[0])

    def further(self) -> tuple[float, float]:
        """The median overhead of the others, and half of the distance between its quartiles."""
        beyond = [second for sweep in self.sweeps for second in sweep.overheads()[1]]
        if len(beyond) == 1:
            return beyond[0], 0.0
        low, middle, high = statistics.quantiles(beyond, n=4, method="inclusive")
        return middle, (high - low) / 2

    def whole(self) -> float:
        """The median seconds of a sweep."""
        return statistics.median(sweep.seconds for sweep in self.sweeps)

    def line(self, ours: Row) -> str:
        """The table's line, with the ratio of `ours` to this one."""
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
    """Trainings of the same settings that score otherwise than the first row's: they were not the same."""
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
