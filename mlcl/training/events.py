"""The events that a run passes to a listener, so that the training itself needs no tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["start", "step", "validation", "saving", "phase", "note", "damage", "end", "encoding"]

TIMES = ("time/train_seconds", "time/evaluation_seconds")
"""The metrics with the seconds of training and of evaluation."""


@dataclass(frozen=True)
class Event:
    """An event of a run, with the progress of the training, and metrics of a step, a validation or the end.

    `saving` comes just before a checkpoint is written, `phase` at the start of each part of the evaluation,
    `note` with a message to the user, `damage` with a message about a damaged checkpoint. `epoch` and `step`
    count what is complete, of `epochs` and `steps`. A step has `metrics` only if it closes a logging window.
    `note` is the message, or the name of the phase. At the `start` of a resumed run `validations` has
    the metrics of its earlier validations, keyed by epoch. Before the start, `encoding` says that `step` of
    `steps` rows of frozen inputs are encoded.
    """

    kind: Kind
    epoch: int
    epochs: int
    step: int
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    validations: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


Listener = Callable[[Event], None]
"""A function that receives the events, on rank 0 alone. The run waits until it returns."""


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised when a stop was requested. A stopped training has written the checkpoint to resume from."""


class Diverged(RuntimeError):  # noqa: N818
    """Raised if a loss, weight or output is NaN or infinite.

    The message names it; for a loss it also has the step, the losses of the parts and the labels of the
    batch.
    """
