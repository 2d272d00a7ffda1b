"""The events of a run, which the loop passes to a listener, so that it needs no tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["start", "step", "validation", "saving", "phase", "note", "damage", "end"]


@dataclass(frozen=True)
class Event:
    """An event of a run.

    `kind`: `saving` comes just before a checkpoint is written, `phase` at the begin of each part of the
    evaluation, `note` for a message to the user, `damage` for one about a damaged checkpoint. `epoch` and
    `step` are complete ones of `epochs` and `steps`. `metrics` are those of a validation, of the end, or of a
    step that closes a logging window. `note` is the message, or the name of the phase. `validations` are, at
    the `start` of a resumed run, the metrics of its earlier validations by epoch.
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
"""Receives events, on rank 0 alone. The loop waits until it returns."""


class Stopped(Exception):  # noqa: N818 (not an error)
    """A stop was requested, and the checkpoint to resume from is written."""


class Diverged(RuntimeError):  # noqa: N818
    """A loss, weight or output is NaN or infinite; the message names the step, the part and the batch."""
