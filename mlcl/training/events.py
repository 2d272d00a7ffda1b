"""The events of a run. The loop gives them to a listener, a function, and so needs no tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["start", "step", "validation", "saving", "phase", "note", "damage", "end"]


@dataclass(frozen=True)
class Event:
    """A moment of a run.

    `step` counts optimiser steps, the one axis of all metrics. A `step` event carries metrics only where a
    logging window closed; `saving` comes just before a checkpoint is written; `phase` names in `note` the
    step of the evaluation that begins (embedding, linear probe, neighbours, test, transfer); `note` is a
    message to the user, `damage` one about a damaged checkpoint. The `start` of a resumed run has in
    `validations` the metrics of each validation up to its checkpoint, by epoch.
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
"""Called on rank 0 alone, in the loop's thread, which waits until it returns."""


def tell_all(*listeners: Listener) -> Listener:
    """One listener that calls several, in order."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


class Stopped(Exception):  # noqa: N818 (not an error)
    """Raised after a requested stop, when the checkpoint to resume from is written."""


class Diverged(RuntimeError):  # noqa: N818
    """A loss became NaN or infinite; the message says at which step, in which part, on which batch."""
