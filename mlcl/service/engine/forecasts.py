"""When a command with a budget announces what the rest of it will need, and from which figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from mlcl.service.engine.budget import Account, forecast
from mlcl.service.engine.entries import Cost, Entry

AFTER_TRIALS = 3
"""Trials that have ended when the forecast is made again, now from what they really cost."""


class Forecasts:
    """One forecast from the pace of the first training that was validated twice, one from those that ended.

    `at_once` trainings share the clock; CPUs and GPUs are held by each.
    """

    def __init__(
        self,
        account: Account,
        at_once: int,
        announce: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account, self._at_once, self._announce, self._clock = account, at_once, announce, clock
        self._first: dict[str, tuple[int, float]] = {}
        self._from_pace = self._from_ended = account.budget is None

    def rung(self, entry: Entry, epoch: int, left: int) -> None:
        """A validation. The time before the first one is mostly the process's start, so it is left out."""
        if self._from_pace or self._from_ended:
            return
        began, at = self._first.setdefault(entry.key, (epoch, self._clock()))
        if epoch > began:
            self._from_pace = True
            seconds = (self._clock() - at) / (epoch - began) * int(entry.job["train"]["epochs"])
            cost = entry.cost
            self._tell([Cost(seconds, seconds * cost.cpus, seconds * cost.gpus)], left)

    def ended(self, trials: Sequence[Entry], left: int) -> None:
        """Trainings that have ended so far."""
        if not self._from_ended and len(trials) >= AFTER_TRIALS:
            self._from_ended = True
            self._tell([trial.cost for trial in trials], left)

    def _tell(self, costs: Sequence[Cost], left: int) -> None:
        budget = self._account.budget
        if budget is None:
            return
        names = {"clock": "seconds", "cpu": "cpu_seconds", "gpu": "gpu_seconds"}
        mean = statistics.fmean(getattr(cost, names[budget.unit]) for cost in costs)
        if budget.unit == "clock":
            mean /= self._at_once
        self._announce(forecast(left, mean, self._account.used(), budget))
