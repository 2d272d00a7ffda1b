"""The settings of the training loop, and the functions that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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
    checkpoints are 5 seconds apart at least. With `log_gradients` the
    norm of each part's gradient is logged at the end of a logging window. `compile` compiles the encoder and
    the augmentation.
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
    compile: bool = False


@dataclass(frozen=True)
class Callbacks:
    """`listener` gets the events, `validate` returns metrics, `should_stop` is asked after each step."""

    listener: Listener
    validate: Callable[[], dict[str, float]]
    should_stop: Callable[[], bool]
