"""What a training has scored so far, in its own folder.

A driver that is killed may not have written down what was reported to it. The training that goes on reports
everything again; it repeats only the epochs since its checkpoint, so the rest must be kept here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.ledger_lines import Chain

SCORES = "scores.jsonl"


class Scores:
    """The scores of one training: those of its validations, and the final values once there are any.

    Only the process that holds the training's folder may write. Its lines have checksums like those of a
    ledger. Raises UserError where one is damaged.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / SCORES
        self.rungs: list[tuple[int, float]] = []
        self.values: list[float] | None = None
        self._chain = Chain()
        self._read()

    @classmethod
    def anew(cls, folder: Path, rungs: Iterable[tuple[int, float]]) -> Scores:
        """Replaces a damaged file by these scores; the final values are found again by an evaluation."""
        (folder / SCORES).unlink(missing_ok=True)
        scores = cls(folder)
        for epoch, score in rungs:
            scores.add(epoch, score)
        return scores

    def _read(self) -> None:
        if not self._path.exists():
            return
        raw = self._path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.truncate(self._path, whole)  # torn: its writer was killed
        for number, line in enumerate(raw[:whole].splitlines(), start=1):
            try:
                entry = self._chain.read(line)
                if "values" in entry:
                    self.values = [float(value) for value in entry["values"]]
                else:
                    self.rungs.append((int(entry["epoch"]), float(entry["score"])))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError("damaged", file=self._path, key=f"line {number}", found=error) from None

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
        line = self._chain.seal(entry)
        with self._path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._chain.read(line[:-1])
