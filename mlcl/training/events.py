"""What the loop tells the world. It knows no tracker and no scheduler: a listener is a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["start", "step", "validation", "saving", "phase", "note", "end"]


@dataclass(frozen=True)
class Event:
    """A moment of a run.

    `step` counts optimiser steps, the one axis of all metrics. A `step` event carries metrics only where a
    logging window closed; `saving` comes just before a checkpoint is written; `phase` names in `note` what
    begins after training (embedding, probe, neighbours, test); `note` says what the user should know.
    """

    kind: Kind
    epoch: int
    epochs: int
    step: int
    steps: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


Listener = Callable[[Event], None]
"""Called on rank 0 alone, in the loop's thread: it must return at once."""


def tell_all(*listeners: Listener) -> Listener:
    """One listener that calls several, in order."""

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell


class Stopped(Exception):  # noqa: N818 (not an error)
    """The run was asked to stop and has written a checkpoint to go on from."""


class Diverged(RuntimeError):  # noqa: N818
    """A loss became NaN or infinite; says at which step, in which part, on what batch."""
