"""What a command may spend and has spent, and what is expected of the rest."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mlcl.errors import UserError
from mlcl.service.engine.entries import Cost, Entry

KEY = "--budget"
EXAMPLES = "2h, 30m, 45s, 1.5h, 30cpu-h, 8gpu-h, 90gpu-m"
SECONDS = {"h": 3600, "m": 60, "s": 1}
Unit = Literal["clock", "cpu", "gpu"]
AFTER_TRIALS = 3
"""Trials that have ended when the forecast is made again, now from what they really cost."""


@dataclass(frozen=True)
class Budget:
    """An amount in seconds of the clock, of CPUs or of GPUs; `text` is how it was asked for."""

    amount: float
    unit: Unit
    text: str


def parse_budget(text: str) -> Budget:
    """`2h` by the clock, `30cpu-h` or `8gpu-h` by what the trials hold. Raises UserError for others."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:(cpu|gpu)-)?([hms])", text.strip())
    amount = float(found[1]) * SECONDS[found[3]] if found else 0.0
    if found is None or amount <= 0 or not math.isfinite(amount):
        raise UserError("not an amount of time above 0", key=KEY, found=text, allowed=EXAMPLES)
    unit: Unit = "cpu" if found[2] == "cpu" else "gpu" if found[2] == "gpu" else "clock"
    return Budget(amount, unit, text.strip())


def check_budget(budget: Budget | None, gpus: float) -> None:
    """Raises UserError for a budget of GPU time where trials hold no GPU: it would never be used up."""
    if budget is not None and budget.unit == "gpu" and gpus <= 0:
        raise UserError(
            "trials hold no GPU, so none of this would be used",
            key=KEY,
            found=budget.text,
            allowed="a budget by the clock (2h) or in CPU time (30cpu-h)",
        )


@dataclass(frozen=True)
class _Running:
    since: float
    share: float


class Account:
    """Counts what trials use, in the unit of the budget; by the clock where there is none.

    `spent` is what earlier commands of the same sweep used. By the clock, it runs from here on whether
    trials do or not.
    """

    def __init__(
        self, budget: Budget | None, spent: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.budget = budget
        self._unit: Unit = budget.unit if budget else "clock"
        self._spent = spent
        self._clock = clock
        self._made = clock()
        self._running: dict[str, _Running] = {}

    def begin(self, key: str, cpus: float, gpus: float) -> None:
        """A trial runs from now on and holds this much. Raises ValueError where it runs already."""
        if key in self._running:
            raise ValueError(f"{key!r} runs already")
        share = {"clock": 0.0, "cpu": cpus, "gpu": gpus}[self._unit]
        self._running[key] = _Running(self._clock(), share)

    def end(self, key: str) -> float:
        """A trial has ended; the seconds that it ran. Raises KeyError where it did not run."""
        ended = self._running.pop(key)
        seconds = self._clock() - ended.since
        self._spent += seconds * ended.share
        return seconds

    def used(self) -> float:
        """Everything so far, what runs included, in (CPU or GPU) seconds."""
        now = self._clock()
        if self._unit == "clock":
            return self._spent + now - self._made
        return self._spent + math.fsum((now - run.since) * run.share for run in self._running.values())

    def left(self) -> float | None:
        """What remains, never below 0; None without a budget."""
        return None if self.budget is None else max(0.0, self.budget.amount - self.used())

    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.left() == 0.0

    def left_text(self) -> str | None:
        """What remains, for people: `1.2 gpu-h`; None without a budget."""
        left = self.left()
        return None if left is None else amount_text(left, self._unit)

    def used_text(self) -> str:
        """What was used, for people."""
        return amount_text(self.used(), self._unit)


def forecast(count: int, cost: float, used: float, budget: Budget) -> str:
    """One line: what `count` trainings need at the mean cost so far, beside what the budget has left.

    By the clock, the cost of a training is its duration over the number that run at once.
    """
    left, needed = max(0.0, budget.amount - used), count * cost
    letter = _letter(max(needed, left))
    text = f"forecast: {count} trial needs" if count == 1 else f"forecast: {count} trials need"
    text += f" {_amount(needed, budget.unit, letter)}"
    text += f", the budget has {_amount(left, budget.unit, letter)} left"
    return text if needed <= left else f"{text}: about {int(left / cost)} of them"


def amount_text(seconds: float, unit: Unit) -> str:
    """`1.2 gpu-h`, `35.0 m`: an amount in the largest unit of which there is a whole one."""
    return _amount(seconds, unit, _letter(seconds))


def _letter(seconds: float) -> str:
    return next(letter for letter, size in SECONDS.items() if seconds >= size or letter == "s")


def _amount(seconds: float, unit: Unit, letter: str) -> str:
    prefix = "" if unit == "clock" else f"{unit}-"
    return f"{seconds / SECONDS[letter]:.1f} {prefix}{letter}"


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
