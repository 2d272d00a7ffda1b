"""The settings of the training loop, the functions that it calls, its position and its logging window."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from mlcl.training.events import Listener


@dataclass(frozen=True)
class Patience:
    """Ends a training after so many `validations` without a better `metric`; the best weights are kept."""

    validations: int
    metric: str
    mode: Literal["max", "min"]

    def better(self, value: float, best: float | None) -> bool:
        """Whether a validation beats the best so far; NaN never does."""
        if best is None:
            return value == value
        return value > best if self.mode == "max" else value < best


@dataclass(frozen=True)
class LoopSettings:
    """How long the loop trains, and how it makes a step.

    `views` of each sample are in a batch; `micro_batch_size` are the samples that a process encodes at once,
    None for its whole share. `validate_every` and `checkpoint_every` count epochs; without the latter
    checkpoints are 5 seconds apart at least. With `log_gradients` the norm of each part's gradient is logged
    at the end of a logging window. `compile` is the job's.
    """

    epochs: int
    views: int
    micro_batch_size: int | None
    precision: str
    clip_norm: float | None
    validate_every: int
    checkpoint_every: int | None
    patience: Patience | None
    log_gradients: bool
    compile: bool | Literal["graphs"] = False


@dataclass(frozen=True)
class Callbacks:
    """`listener` gets the events, `validate` returns metrics, `should_stop` is asked after each step."""

    listener: Listener
    validate: Callable[[], dict[str, float]]
    should_stop: Callable[[], bool]


@dataclass
class Position:
    """The position of the loop, and the open logging window.

    `micro_batch_size` is the size that fitted after memory ran out; a resumed run does not try larger ones.
    `validations` has the metrics of all validations by epoch; `best` is the best of them, after `best_step`
    steps, `stale` the number of validations since.
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


class LogWindow:
    """Scalars of steps, in float64, which stay on their device until they are read."""

    def __init__(self) -> None:
        self._steps: list[Tensor] = []
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Adds a step's values, which are on one device."""
        self._names = list(values)
        self._steps.append(torch.stack([value.detach().double() for value in values.values()]))

    def read(self, kept: dict[str, float]) -> list[dict[str, float]]:
        """Adds the steps up to the sums in `kept`; returns and forgets them. One transfer."""
        rows = torch.stack(self._steps).tolist() if self._steps else []
        self._steps = []
        for row in rows:
            for name, value in zip(self._names, row, strict=True):
                kept[name] = kept.get(name, 0.0) + value
        return [dict(zip(self._names, row, strict=True)) for row in rows]
