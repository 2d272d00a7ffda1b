"""How far a log has been delivered: kept beside it, so that any later command goes on from there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from mlcl.tracking.atomic_files import replace_text

CURSOR = "cursor.json"
LOCK = "delivery.lock"
"""Held by the one process that delivers the log."""


@dataclass
class Cursor:
    """What is in MLflow.

    Everything before `offset` is; the run is `ended` if that ends with its final state. `creating`: the run
    may have been made without our knowing; `twice`: it may even have been made two times.
    `undeliverable`: why MLflow does not take the rest, empty where nobody has refused it.
    """

    offset: int = 0
    ended: bool = False
    run_id: str | None = None
    creating: bool = False
    twice: bool = False
    undeliverable: str = ""

    @property
    def place(self) -> tuple[int, str | None]:
        """What changes as the log gets delivered."""
        return self.offset, self.run_id

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The log's cursor; the first one where there is none."""
        try:
            return cls(**json.loads((folder / CURSOR).read_text()))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError):
            return cls(creating=True)  # damaged: what it knew may have been a run

    def write(self, folder: Path) -> None:
        """Replaces the log's cursor."""
        replace_text(folder / CURSOR, json.dumps(asdict(self)) + "\n")
