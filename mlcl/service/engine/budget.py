"""The time budget of a sweep or table, the time that its commands have used, and forecasts of the rest."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mlcl.errors import UserError
from mlcl.service.engine.entries import Cost, Entry, Unit
from mlcl.service.engine.ledger import Ledger

KEY = "--budget"
EXAMPLES = "2h, 30m, 45s, 1.5h, 30cpu-h, 8gpu-h, 90gpu-m"
SECONDS = {"h": 3600, "m": 60, "s": 1}
AFTER_TRIALS = 3
"""The number of trials that must have ended before the second forecast is made, from their mean cost."""


@dataclass(frozen=True)
class Budget:
    """A time limit: `amount` in seconds, CPU-seconds or GPU-seconds (`unit`); `text` as the user gave it."""

    amount: float
    unit: Unit
    text: str


def parse_budget(text: str) -> Budget:
    """Parses a budget: `2h` is wall-clock time; `30cpu-h` or `8gpu-h` is a sum over trials.

    The sum adds the time that each trial runs times the CPUs or GPUs that it holds. Raises UserError if the
    text is no such amount or is not above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:(cpu|gpu)-)?([hms])", text.strip())
    amount = float(match[1]) * SECONDS[match[3]] if match else 0.0
    if match is None or amount <= 0 or not math.isfinite(amount):
        raise UserError("not an amount of time above 0", key=KEY, found=text, allowed=EXAMPLES)
    unit: Unit = "cpu" if match[2] == "cpu" else "gpu" if match[2] == "gpu" else "clock"
    return Budget(amount, unit, text.strip())


def check_budget(budget: Budget | None, gpus: float) -> None:
    """Raises UserError for a budget of GPU time if trials hold no GPUs, since it would never be used up."""
    if budget is not None and budget.unit == "gpu" and gpus <= 0:
        raise UserError(
            "trials hold no GPU, so none of this would be used",
            key=KEY,
            found=budget.text,
            allowed="a budget by the clock (2h) or in CPU time (30cpu-h)",
        )


class Account:
    """The time that the commands of a sweep or table have used, in the unit of its budget.

    Without a budget the unit is wall-clock time. Wall-clock time also counts while a command trains nothing.
    """

    def __init__(self, budget: Budget | None, ledger: Ledger) -> None:
        self.budget, self._ledger = budget, ledger
        self._unit: Unit = budget.unit if budget else "clock"

    def used(self) -> float:
        """Returns the time used so far, including running trainings: seconds, CPU-seconds or GPU-seconds."""
        return self._ledger.used_time(self._unit)

    def time_left(self) -> float | None:
        """Returns the rest of the budget in seconds of its unit, never below 0; None if no budget is set."""
        return None if self.budget is None else max(0.0, self.budget.amount - self.used())

    def is_used_up(self) -> bool:
        """Whether the budget is used up; False if there is no budget."""
        return self.time_left() == 0.0

    def left_text(self) -> str | None:
        """Returns the rest of the budget as a text such as `1.2 gpu-h`; None if there is no budget."""
        left = self.time_left()
        return None if left is None else amount_text(left, self._unit)

    def used_text(self) -> str:
        """Returns the used time as a text such as `1.2 gpu-h`."""
        return amount_text(self.used(), self._unit)


def forecast(count: int, cost: float, used: float, budget: Budget) -> str:
    """Returns a line that compares the time for `count` trainings with the rest of the budget.

    `cost` is the mean time of a training and `used` the used time, both in the unit of the budget.
    """
    budget_left, total_cost = max(0.0, budget.amount - used), count * cost
    letter = _unit_letter(max(total_cost, budget_left))
    text = f"forecast: {count} trial needs" if count == 1 else f"forecast: {count} trials need"
    text += f" {_format_amount(total_cost, budget.unit, letter)}"
    text += f", the budget has {_format_amount(budget_left, budget.unit, letter)} left"
    return text if total_cost <= budget_left else f"{text}: about {int(budget_left / cost)} of them"


def amount_text(seconds: float, unit: Unit) -> str:
    """Formats seconds as `1.2 gpu-h` or `35.0 m`: in hours from 1 h on, else in minutes from 1 m on."""
    return _format_amount(seconds, unit, _unit_letter(seconds))


def _unit_letter(seconds: float) -> str:
    return next(letter for letter, size in SECONDS.items() if seconds >= size or letter == "s")


def _format_amount(seconds: float, unit: Unit, letter: str) -> str:
    prefix = "" if unit == "clock" else f"{unit}-"
    return f"{seconds / SECONDS[letter]:.1f} {prefix}{letter}"


class Forecasts:
    """Announces two forecasts of the time that the remaining trainings need; none without a budget.

    The first is made from the pace of the first training, the second from the mean cost of ended trainings.
    `at_once` is the number of trainings that run at the same time.
    """

    def __init__(
        self,
        account: Account,
        at_once: int,
        announce: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account, self._concurrency, self._announce, self._clock = account, at_once, announce, clock
        self._first_reports: dict[str, tuple[int, float]] = {}
        self._pace_announced = self._cost_announced = account.budget is None

    def report(self, entry: Entry, epoch: int, left: int) -> None:
        """Announces the first forecast; called at each validation, with the number `left` of trainings to go.

        The pace is measured from a training's first to its second validation, because the time before the
        first one includes the start of the process.
        """
        if self._pace_announced or self._cost_announced:
            return
        first_epoch, first_time = self._first_reports.setdefault(entry.key, (epoch, self._clock()))
        if epoch > first_epoch:
            self._pace_announced = True
            seconds = (self._clock() - first_time) / (epoch - first_epoch) * int(entry.job["train"]["epochs"])
            cost = entry.cost
            self._announce_forecast([Cost(seconds, seconds * cost.cpus, seconds * cost.gpus)], left)

    def on_training_end(self, trials: Iterable[Entry], left: int) -> None:
        """Announces the second forecast if AFTER_TRIALS `trials` have ended; `left` trainings are to go."""
        costs = [] if self._cost_announced else [trial.cost for trial in trials]
        if len(costs) >= AFTER_TRIALS:
            self._cost_announced = True
            self._announce_forecast(costs, left)

    def _announce_forecast(self, costs: Sequence[Cost], trainings_left: int) -> None:
        budget = self._account.budget
        if budget is None:
            return
        mean = statistics.fmean(cost.used(budget.unit) for cost in costs)
        if budget.unit == "clock":
            mean /= self._concurrency
        self._announce(forecast(trainings_left, mean, self._account.used(), budget))
