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
        trainings = sorted(self.trainings, key=lambda training: training.began)
        free_times = [self.began] * self.at_once + sorted(training.ended for training in trainings)
        overheads = [
            training.ended - free_time - training.own
            for training, free_time in zip(trainings, free_times, strict=False)
        ]
        return overheads[: self.at_once], overheads[self.at_once :]


@dataclass
class Row:
    """The durations of a contender's sweeps of one case."""

    case: Case
    contender: str
    sweeps: list[Sweep] = field(default_factory=list)

    def first(self) -> float:
        """Returns the median overhead of a slot's first training, with imports and start of services."""
        return statistics.median(overhead for sweep in self.sweeps for overhead in sweep.overheads()[0])

    def further(self) -> tuple[float, float]:
        """Returns the median overhead of the other trainings, and half the distance between its quartiles."""
        overheads = [overhead for sweep in self.sweeps for overhead in sweep.overheads()[1]]
        if len(overheads) == 1:
            return overheads[0], 0.0
        low, middle, high = statistics.quantiles(overheads, n=4, method="inclusive")
        return middle, (high - low) / 2

    def whole(self) -> float:
        """Returns the median seconds of a sweep."""
        return statistics.median(sweep.seconds for sweep in self.sweeps)

    def line(self, ours: Row) -> str:
        """Returns the table's line, with the ratio of `ours` to this row."""
        (overhead, spread), target = self.further(), self.case.target
        verdict = f"{target:g}: {'met' if overhead <= target else 'NOT met'}"
        own_seconds = statistics.median(training.own for sweep in self.sweeps for training in sweep.trainings)
        cells = [
            self.case.name,
            self.contender,
            f"{self.first():.1f}",
            f"{overhead:.2f} ±{spread:.2f}",
            "-" if self is ours else f"{ours.further()[0] / overhead:.2f}",
            verdict if self is ours else "-",
            f"{own_seconds:.2f}",
            f"{self.whole():.1f}",
            "-" if self is ours else f"{ours.whole() / self.whole():.2f}",
        ]
        return f"| {' | '.join(cells)} |"


def differences(rows: Sequence[Row]) -> list[str]:
    """Returns descriptions of trainings whose score differs from the first row's for equal settings."""
    ours, *peers = rows
    messages = []
    for peer in peers:
        for our_sweep, peer_sweep in zip(ours.sweeps, peer.sweeps, strict=True):
            pairs = zip(our_sweep.trainings, peer_sweep.trainings, strict=True)
            for number, (our_training, peer_training) in enumerate(pairs):
                if our_training.score != peer_training.score:
                    location = f"{peer.case.name}, training {number}"
                    messages.append(
                        f"{location}: {ours.contender} {our_training.score}, "
                        f"{peer.contender} {peer_training.score}"
                    )
    return messages
