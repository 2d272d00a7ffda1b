"""The events that a sweep or a table reports to a listener: a live table, plain lines or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.tracking import State

Stage = Literal["search", "confirmation", "table"]
Kind = Literal["note", "stage", "begin", "rung", "close", "end"]


@dataclass(frozen=True)
class Row:
    """One training as it stands: its last epoch and score; `seconds` since it began.

    `metric` names the score: a finished training's is the best over the post-hoc keys, where some are free.
    `settings` are the keys that were drawn.
    """

    label: str
    state: State
    epoch: int
    epochs: int
    score: float | None
    seconds: float
    reason: str = ""
    metric: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """The sweep or table as it stands.

    `running` are the trainings that run now; `best` is the best finished search trial; `seconds_left` is the
    expected time to the end of the stage, None while nothing is known; `budget_left` reads `1.2 gpu-h`.
    """

    stage: Stage
    done: int
    total: int
    metric: str
    running: tuple[Row, ...] = ()
    best: tuple[str, float] | None = None
    seconds_left: float | None = None
    budget_left: str | None = None


@dataclass(frozen=True)
class ProgressEvent:
    """Something that has happened.

    `note` says something to the person (`text`); `stage` begins a stage; `begin`, `rung` and `close` are
    about one training (`row`); `end` is the last one.
    """

    kind: Kind
    text: str = ""
    row: Row | None = None
    progress: Progress | None = None


ProgressListener = Callable[[ProgressEvent], None]
"""Called in the command's thread: it must return at once."""


def steady(watch: ProgressListener) -> ProgressListener:
    """A listener that ignores OSError: trainings go on when their progress has no reader or terminal."""
    gone = False

    def tell(event: ProgressEvent) -> None:
        nonlocal gone
        if not gone:
            try:
                watch(event)
            except OSError:
                gone = True

    return tell
