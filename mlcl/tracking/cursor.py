"""How much of a log has been delivered; kept beside the log, so that a later command can continue."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from mlcl.files import replace_text
from mlcl.tracking.log import log_folder

CURSOR = "cursor.json"
LOCK = "delivery.lock"
"""Held by the one process that delivers the log."""


@dataclass
class Cursor:
    """What of a log is in MLflow.

    `offset`: bytes of the log that were delivered. `ended`: they end with the final state. `run_id`: the run,
    of `experiment_id`, which logs that were begun by an earlier mlcl lack.
    `creating`: a request to create the run was sent and its answer is unknown. `twice`: two such requests
    were sent, so that there may be two runs. `undeliverable`: why MLflow refused the rest, or empty.
    """

    offset: int = 0
    ended: bool = False
    run_id: str | None = None
    creating: bool = False
    twice: bool = False
    undeliverable: str = ""
    experiment_id: str | None = None

    @property
    def position(self) -> tuple[int, str | None]:
        """Changes with every delivered entry."""
        return self.offset, self.run_id

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The cursor in a log's folder; a new one where there is none."""
        try:
            return cls(**json.loads((folder / CURSOR).read_text()))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError):
            return cls(creating=True)  # a damaged file may have named a run

    def write(self, folder: Path) -> None:
        """Writes the cursor, whole or not at all."""
        replace_text(folder / CURSOR, json.dumps(asdict(self)) + "\n")


def run_id_of(home: Path, id: str) -> str | None:
    """The id of a log's run in MLflow; None where the run has not been created yet."""
    return Cursor.read(log_folder(home, id)).run_id
