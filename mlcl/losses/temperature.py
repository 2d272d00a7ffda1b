"""The temperature tau of a loss: constant, scheduled over training, or learned."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlcl.losses import tiling

Schedule = Literal["linear", "cosine"]


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 < value < math.inf):
        raise ValueError(f"{what} must be a finite number above 0; found: {value!r}")
    return float(value)


class Temperature(nn.Module):
    """tau as a module: `value()` is a scalar tensor above 0."""

    def value(self) -> Tensor:
        """The temperature now."""
        raise NotImplementedError

    def number(self) -> float:
        """The same as a number: a learned one is read from its device, which waits for it."""
        return float(self.value().detach())

    def known(self) -> float | Tensor:
        """`number`; but of one that a device would be waited for the value there, float64 without graph."""
        value = self.value().detach()
        return self.number() if tiling.is_host(value.device) else value.double()

    def set_progress(self, fraction: float) -> None:
        """Sets the share of the training that is done, 0 to 1; only a schedule depends on it."""


class ConstantTemperature(Temperature):
    """One value for good. A buffer, since DDP refuses a parameter that gets no gradient."""

    tau: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self._number = _positive(value, "temperature")
        # A zero-dimensional float64 never widens float32 logits, and holds 0.07 as Python does.
        self.register_buffer("tau", torch.tensor(self._number, dtype=torch.float64))

    def value(self) -> Tensor:
        """The temperature; a copy, since a graph may outlive it."""
        return self.tau.clone()

    def number(self) -> float:
        """The temperature, without a look at the device."""
        return self._number

    def known(self) -> float:
        """The same."""
        return self._number

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._number = float(self.tau)


class ScheduledTemperature(ConstantTemperature):
    """From `start` to `end` over training, f being the progress.

    linear: start + (end - start) f.  cosine: end + (start - end) (1 + cos(pi f)) / 2.
    """

    def __init__(self, start: float, end: float, schedule: Schedule = "cosine") -> None:
        super().__init__(_positive(start, "start of the temperature"))
        self.start = self._number
        self.end = _positive(end, "end of the temperature")
        if schedule not in ("linear", "cosine"):
            raise ValueError(f"schedule of the temperature; found: {schedule!r}; allowed: linear, cosine")
        self.schedule = schedule

    def set_progress(self, fraction: float) -> None:
        """Moves to this share of the training; beyond 0..1 the ends hold."""
        done = min(max(fraction, 0.0), 1.0)
        if self.schedule == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        self._number = self.start + (self.end - self.start) * done
        self.tau.fill_(self._number)


class LearnedTemperature(Temperature):
    """tau = exp(log_tau) with the parameter log_tau, so that it stays above 0."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_tau = nn.Parameter(torch.tensor(math.log(_positive(initial, "temperature"))))

    def value(self) -> Tensor:
        """The temperature, with its gradient."""
        return self.log_tau.exp()


def as_temperature(given: float | Temperature) -> Temperature:
    """A module as it is; a number as a constant. Raises ValueError for a number that is not above 0."""
    return given if isinstance(given, Temperature) else ConstantTemperature(given)
