"""What a training has scored so far, in its own folder.

A driver that is killed may not have written down what was reported to it. The training that goes on reports
everything again; it repeats only the epochs since its checkpoint, so the rest must be kept here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

SCORES = "scores.jsonl"


class Scores:
    """The scores of one training: those of its validations, and the final values once there are any.

    Only the process that holds the training's folder may write.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / SCORES
        self.rungs: list[tuple[int, float]] = []
        self.values: list[float] | None = None
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        raw = self._path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.truncate(self._path, whole)  # torn: its writer was killed
        for line in raw[:whole].splitlines():
            entry = json.loads(line)
            if "values" in entry:
                self.values = entry["values"]
            else:
                self.rungs.append((entry["epoch"], entry["score"]))

    def add(self, epoch: int, score: float) -> bool:
        """Keeps a validation's score; False where this epoch has one already."""
        if any(epoch == known for known, _ in self.rungs):
            return False
        self._append({"epoch": epoch, "score": score})
        self.rungs.append((epoch, score))
        return True

    def finish(self, values: list[float]) -> None:
        """Keeps the final values: everything else of the training has been written before."""
        self._append({"values": values})
        self.values = values

    def _append(self, entry: dict[str, object]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
