"""What the engine trains, and where: a source hands out trainings, a store keeps their folders and logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.progress_events import Stage
from mlcl.tracking import State


class TrainingStore(Protocol):
    """Where trainings lie and log. Every method may be called again after a kill at any point."""

    def folder(self, entry: Entry) -> Path:
        """The training's folder: checkpoint, scores, result."""

    def log(self, entry: Entry) -> str:
        """The id of the training's log."""

    def open(self, entry: Entry) -> None:
        """Makes the training ready to be handed out: its log is started and is being delivered."""

    def begun(self, entry: Entry) -> None:
        """A process has begun with the training."""

    def closed(self, entry: Entry) -> None:
        """Writes the entry's state, which is in the ledger already, to the log."""

    def taken(self, entry: Entry) -> str:
        """Why the training is not this command's any more; empty where it is."""


class TrainingSource(Protocol):
    """A stage's trainings: a search, the seeds of a confirmation, the cells of a table.

    With `test` its trainings read the test split.
    """

    stage: Stage
    test: bool

    @property
    def store(self) -> TrainingStore:
        """Where its trainings lie and log."""

    @property
    def scores(self) -> Sequence[str]:
        """The metrics whose final values a training reports."""

    def start(self) -> tuple[int, int]:
        """Opens what is known beforehand; how many trainings earlier commands have done, and all of them."""

    def next(self) -> Entry | None:
        """The next training to start, open in the ledger; None where there is none (any more)."""

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:
        """Whether a validation's score stops the training early."""

    def complete(self, entry: Entry, values: list[float]) -> End:
        """What the final values of a training come to: COMPLETE, or FAILED where one is not a number."""

    def closed(self, entry: Entry) -> None:
        """A training has ended or was interrupted; ledger and log say so."""

    def left(self) -> int | None:
        """How many trainings a forecast is about; None where none is made."""

    def end(self, state: State, reason: str) -> None:
        """No training of the stage runs any more. State and reason are those of what was interrupted."""
