"""The temperature tau of a loss: constant, scheduled over training, or learned."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from mlcl.losses import tiling

Schedule = Literal["linear", "cosine"]


def _check_positive(value: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not (0 < value < math.inf):
        raise ValueError(f"{name} must be a finite number above 0; found: {value!r}")
    return float(value)


class Temperature(nn.Module):
    """The base class of temperatures: a module whose `value()` is tau, a scalar tensor above 0."""

    def value(self) -> Tensor:
        """Returns the current temperature, with its graph if it is learned."""
        raise NotImplementedError

    def number(self) -> float:
        """Returns the current temperature as a float; the host waits for the device if it is learned."""
        return float(self.value().detach())

    def engine_value(self) -> float | Tensor:
        """Returns the current temperature as a float, or as a float64 tensor without graph.

        The result is a tensor if the temperature is on a device for which the host would have to wait.
        """
        value = self.value().detach()
        return self.number() if tiling.is_host(value.device) else value.double()

    def set_progress(self, fraction: float) -> None:
        """Sets the fraction of the training that is done, 0 to 1, on which only a schedule depends."""


class ConstantTemperature(Temperature):
    """A constant temperature. Raises ValueError for a value that is not above 0.

    It is a buffer, since DDP refuses a parameter that gets no gradient.
    """

    tau: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self._number = _check_positive(value, "temperature")
        # A zero-dimensional float64 never widens float32 logits, and holds 0.07 as Python does.
        self.register_buffer("tau", torch.tensor(self._number, dtype=torch.float64))

    def value(self) -> Tensor:
        """Returns a copy of the temperature, since a graph may still need it after the buffer has changed."""
        return self.tau.clone()

    def number(self) -> float:
        """Returns the temperature as a float, without reading it from the device."""
        return self._number

    def engine_value(self) -> float:
        """Returns the temperature as a float."""
        return self._number

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self.tau = self.tau.new_tensor(self._number, dtype=torch.float64)  # half() would round it
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self._number = float(self.tau)


class ScheduledTemperature(ConstantTemperature):
    """A temperature that moves from `start` to `end` as the progress f of the training goes from 0 to 1.

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
        super().__init__(_check_positive(start, "start of the temperature"))
        self.start = self._number
        self.end = _check_positive(end, "end of the temperature")
        if schedule not in ("linear", "cosine"):
            raise ValueError(f"schedule of the temperature; found: {schedule!r}; allowed: linear, cosine")
        self.schedule = schedule

    def set_progress(self, fraction: float) -> None:
        """Sets the temperature for this fraction of the training; values outside 0..1 are clipped."""
        progress = min(max(fraction, 0.0), 1.0)
        if self.schedule == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        self._number = self.start + (self.end - self.start) * progress
        self.tau.fill_(self._number)


class LearnedTemperature(Temperature):
    """A learned temperature tau = exp(log_tau), with the parameter log_tau, so that it stays above 0.

    Raises ValueError for an initial value that is not above 0.

    Example:
        >>> loss = build_loss("supcon", temperature=LearnedTemperature(0.5))
        >>> round(loss.temperature.number(), 6)
        0.5
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_tau = nn.Parameter(torch.tensor(math.log(_check_positive(initial, "temperature"))))

    def value(self) -> Tensor:
        """Returns the temperature, with its graph."""
        return self.log_tau.exp()


def as_temperature(value: float | Temperature) -> Temperature:
    """Returns a `Temperature` unchanged, and converts a number to a `ConstantTemperature`."""
    return value if isinstance(value, Temperature) else ConstantTemperature(value)
