"""Interfaces of sources, which hand out trainings to the engine, and of stores of their folders and logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.progress import Stage
from mlcl.tracking import State
from mlcl.training.run_files import Stored


class Files(NamedTuple):
    """The type of a training's stored model and embeddings, and whether they are logged as artifacts.

    Files that are not logged may be removed later.
    """

    stored: Stored = "float32"
    logged: bool = True


class TrainingStore(ABC):
    """Manages the folders and logs of trainings. Every method can be repeated after a kill at any point."""

    @abstractmethod
    def folder(self, entry: Entry) -> Path:
        """Returns the training's folder, which has its checkpoint and results."""

    @abstractmethod
    def log(self, entry: Entry) -> str:
        """Returns the id of the training's log."""

    @abstractmethod
    def open(self, entry: Entry) -> None:
        """Starts the training's log and its delivery, before the training is handed out."""

    @abstractmethod
    def on_start(self, entry: Entry) -> None:
        """Called when a process starts the training."""

    @abstractmethod
    def close(self, entry: Entry, end: End) -> None:
        """Writes the end of the training with `write_end`."""

    def owner_changed(self, entry: Entry) -> str:  # noqa: ARG002
        """Returns a text for the user if another command is running the training; an empty text otherwise."""
        return ""


class TrainingSource(ABC):
    """The trainings of a stage: those of searches, of races, of confirmations, or of the cells of a table.

    A training reports the final values of the metrics named in `scores`. `test` says whether it is evaluated
    on the test split.
    """

    stage: Stage
    store: TrainingStore
    scores: Sequence[str] = ()
    test = True

    @abstractmethod
    def start(self) -> tuple[int, int]:
        """Returns how many trainings have ended already, and the largest number that there can be."""

    @abstractmethod
    def next(self) -> Entry | None:
        """Returns the entry of the next training, and writes it to the ledger if it is new; None for none."""

    @abstractmethod
    def complete(self, entry: Entry, values: list[float]) -> End:
        """Returns the end of a training with these final values of `scores`: FAILED if one is not finite."""

    def twin(self, entry: Entry) -> Entry | None:  # noqa: ARG002
        """Returns an earlier training with the same job, whose results `entry` may take; None for none."""
        return None

    def files(self, entry: Entry) -> Files:  # noqa: ARG002
        """Returns which files a training writes besides its metrics, and whether it logs them."""
        return Files()

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:  # noqa: ARG002
        """Whether an intermediate value stops the training early."""
        return False

    def on_end(self, entry: Entry) -> None:  # noqa: B027
        """Called after the end or the interruption of a training was written to ledger and log."""

    def left(self) -> int | None:
        """Returns the number of trainings that have not ended; None if the source needs no forecasts."""
        return None

    def end(self, state: State, reason: str) -> None:  # noqa: B027
        """Called at the end of the stage, with the state and reason to give to interrupted trainings."""
