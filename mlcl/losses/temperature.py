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
        """The current temperature, with its gradient if it is learned."""
        raise NotImplementedError

    def number(self) -> float:
        """The current temperature as a number; for a learned one the host waits for its device."""
        return float(self.value().detach())

    def engine_value(self) -> float | Tensor:
        """`number`; where the host would wait for it, a float64 tensor on the device, without graph."""
        value = self.value().detach()
        return self.number() if tiling.is_host(value.device) else value.double()

    def set_progress(self, fraction: float) -> None:
        """Sets the share of the training that is done, 0 to 1; only a schedule depends on it."""


class ConstantTemperature(Temperature):
    """A temperature that never changes. Raises ValueError for a value that is not above 0.

    It is a buffer, since DDP refuses a parameter that gets no gradient.
    """

    tau: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self._number = _positive(value, "temperature")
        # A zero-dimensional float64 never widens float32 logits, and holds 0.07 as Python does.
        self.register_buffer("tau", torch.tensor(self._number, dtype=torch.float64))

    def value(self) -> Tensor:
        """The temperature, copied, since a graph may outlive the buffer."""
        return self.tau.clone()

    def number(self) -> float:
        """The temperature, without reading the device."""
        return self._number

    def engine_value(self) -> float:
        """The temperature as a number."""
        return self._number

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._number = float(self.tau)


class ScheduledTemperature(ConstantTemperature):
    """Moves from `start` to `end` over training, with the progress f.

    linear: start + (end - start) f.  cosine: end + (start - end) (1 + cos(pi f)) / 2.

    Raises:
        ValueError: For a start or end that is not above 0, or an unknown schedule.

    Example:
        >>> temperature = ScheduledTemperature(0.5, 0.25)
        >>> temperature.set_progress(1.0)
        >>> temperature.number()
        0.25
    """

    def __init__(self, start: float, end: float, schedule: Schedule = "cosine") -> None:
        super().__init__(_positive(start, "start of the temperature"))
        self.start = self._number
        self.end = _positive(end, "end of the temperature")
        if schedule not in ("linear", "cosine"):
            raise ValueError(f"schedule of the temperature; found: {schedule!r}; allowed: linear, cosine")
        self.schedule = schedule

    def set_progress(self, fraction: float) -> None:
        """Sets the temperature for this share of the training; values outside 0..1 are clipped."""
        done = min(max(fraction, 0.0), 1.0)
        if self.schedule == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        self._number = self.start + (self.end - self.start) * done
        self.tau.fill_(self._number)


class LearnedTemperature(Temperature):
    """tau = exp(log_tau) with the parameter log_tau, so that it stays above 0.

    Raises ValueError for an initial value that is not above 0.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_tau = nn.Parameter(torch.tensor(math.log(_positive(initial, "temperature"))))

    def value(self) -> Tensor:
        """The temperature, with its gradient."""
        return self.log_tau.exp()


def as_temperature(given: float | Temperature) -> Temperature:
    """Returns a module as it is, and a number as a `ConstantTemperature`."""
    return given if isinstance(given, Temperature) else ConstantTemperature(given)
