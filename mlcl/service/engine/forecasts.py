"""When a command with a budget announces what the rest of it will need, and from which figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mlcl.service.engine.budget import Account, forecast
from mlcl.service.engine.entries import Entry

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
        self._unit = account.budget.unit if account.budget else None
        self._first: dict[str, tuple[int, float]] = {}
        self._from_pace = self._from_ended = self._unit is None

    def rung(self, entry: Entry, epoch: int, left: int) -> None:
        """A validation. The time before the first one is mostly the process's start, so it is left out."""
        if self._from_pace or self._from_ended:
            return
        began, at = self._first.setdefault(entry.key, (epoch, self._clock()))
        if epoch > began:
            self._from_pace = True
            seconds = (self._clock() - at) / (epoch - began) * int(entry.job["train"]["epochs"])
            share = {"clock": 1 / self._at_once, "cpu": entry.cost.cpus, "gpu": entry.cost.gpus}[
                self._unit or "clock"
            ]
            self._tell(seconds * share, left)

    def ended(self, trials: Sequence[Entry], left: int) -> None:
        """Trials that have ended so far."""
        if self._from_ended or len(trials) < AFTER_TRIALS:
            return
        self._from_ended = True
        costs = {
            "clock": [trial.cost.seconds / self._at_once for trial in trials],
            "cpu": [trial.cost.cpu_seconds for trial in trials],
            "gpu": [trial.cost.gpu_seconds for trial in trials],
        }[self._unit or "clock"]
        self._tell(sum(costs) / len(costs), left)

    def _tell(self, cost: float, left: int) -> None:
        made = forecast(
            trials_left=left,
            mean_share_seconds=cost,
            used=self._account.used(),
            budget=self._account.budget,
        )
        self._announce(made.line())
