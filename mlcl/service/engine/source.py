"""What the engine trains, and where: a source hands out trainings, a store keeps their folders and logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.progress import Stage
from mlcl.tracking import State


class TrainingStore(ABC):
    """Where trainings lie and log. Every method may be called again after a kill at any point."""

    @abstractmethod
    def folder(self, entry: Entry) -> Path:
        """The training's folder: checkpoint, scores, result."""

    @abstractmethod
    def log(self, entry: Entry) -> str:
        """The id of the training's log."""

    @abstractmethod
    def open(self, entry: Entry) -> None:
        """Makes the training ready to be handed out: its log is started and is being delivered."""

    @abstractmethod
    def on_start(self, entry: Entry) -> None:
        """Called when a process starts with the training."""

    @abstractmethod
    def close(self, entry: Entry, end: End) -> None:
        """Writes the end of the training to the ledger and wherever else it is, with `write_end`."""

    def owner_changed(self, entry: Entry) -> str:  # noqa: ARG002
        """Returns why another command has the training now; empty where this one has it."""
        return ""


class TrainingSource(ABC):
    """A stage's trainings: a search, the seeds of a confirmation, the cells of a table.

    A training reports the final values of `scores`; with `test` it reads the test split.
    """

    stage: Stage
    store: TrainingStore
    scores: Sequence[str] = ()
    test = True

    @abstractmethod
    def start(self) -> tuple[int, int]:
        """Opens what is known beforehand; how many trainings earlier commands have done, and all of them."""

    @abstractmethod
    def next(self) -> Entry | None:
        """The next training to start, open in the ledger; None where there is none (any more)."""

    @abstractmethod
    def complete(self, entry: Entry, values: list[float]) -> End:
        """What the final values of a training come to: COMPLETE, or FAILED where one is not a number."""

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:  # noqa: ARG002
        """Whether a validation's score stops the training early."""
        return False

    def on_end(self, entry: Entry) -> None:  # noqa: B027
        """A training has ended or was interrupted; ledger and log say so."""

    def left(self) -> int | None:
        """How many trainings a forecast is about; None where none is made."""
        return None

    def end(self, state: State, reason: str) -> None:  # noqa: B027
        """No training of the stage runs any more. State and reason are those of what was interrupted."""
