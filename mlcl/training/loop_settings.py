"""The settings and the state of the training loop: early stopping, callbacks, position and logging window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mlcl.training.events import Listener


@dataclass(frozen=True)
class Patience:
    """Settings of early stopping: training ends after `validations` in a row without a better `metric`."""

    validations: int
    metric: str
    mode: Literal["max", "min"]

    def is_better(self, value: float, best: float | None) -> bool:
        """Whether the metric of a validation beats the best so far. NaN never does."""
        if best is None:
            return value == value
        return value > best if self.mode == "max" else value < best


@dataclass(frozen=True)
class Callbacks:
    """The functions that the loop calls.

    `listener` gets the events, on rank 0. `validate` returns the validation metrics. `should_stop` is called
    after each step, and returns whether to stop.
    """

    listener: Listener
    validate: Callable[[], dict[str, float]]
    should_stop: Callable[[], bool]


@dataclass
class Position:
    """The position of the loop, which its checkpoint holds.

    `epoch` and `step` count complete epochs and steps. `micro_batch_size` is the size that fitted after
    memory ran out; a resumed training tries no larger one. `window` has the sums of logged values since the
    last log, over `window_steps` steps. `validations` has the metrics of all validations, keyed by epoch.
    `best` is the best value of the metric of early stopping, reached at `best_step`, and `stale` counts the
    validations since. `seconds` is the duration of training before the resumed checkpoint.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    micro_batch_size: int | None = None
    window: dict[str, float] = field(default_factory=dict)
    window_steps: int = 0
    validations: dict[int, dict[str, float]] = field(default_factory=dict)
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    seconds: float = 0.0


class LogWindow:
    """Collects the scalars of each step in float64; they stay on their device until they are read."""

    def __init__(self) -> None:
        self._steps: list[Tensor] = []
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Appends the scalars of a step, which are all on one device."""
        self._names = list(values)
        self._steps.append(torch.stack([value.detach().double() for value in values.values()]))

    def read(self, sums: dict[str, float]) -> list[dict[str, float]]:
        """Adds the unread steps' scalars to `sums`, and returns them as one dict per step."""
        rows = torch.stack(self._steps).tolist() if self._steps else []
        self._steps = []
        for row in rows:
            for name, value in zip(self._names, row, strict=True):
                sums[name] = sums.get(name, 0.0) + value
        return [dict(zip(self._names, row, strict=True)) for row in rows]
