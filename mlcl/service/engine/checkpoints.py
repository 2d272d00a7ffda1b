"""The checkpoints of trainings that have ended: removed at the end, and found where they were left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RESUMABLE, RunFolders
from mlcl.tracking import State
from mlcl.training.checkpoint import CHECKPOINTS


def drop_checkpoint(folder: Path, state: State) -> None:
    """Removes the checkpoint of a complete or pruned training; a failed one keeps it, to be looked at."""
    if state in (State.COMPLETE, State.PRUNED):
        for name in CHECKPOINTS:
            (folder / name).unlink(missing_ok=True)


def left_checkpoints(home: Path) -> Iterator[tuple[Path, State]]:
    """Every checkpoint in a home that no command goes on from, with the state of its training.

    A sweep or table whose ledger cannot be read is passed over.
    """
    for folder, record in RunFolders(home).records():
        for file in (folder.path / name for name in CHECKPOINTS):
            if file.exists() and record.state not in RESUMABLE:
                yield file, record.state
    found = [file for name in CHECKPOINTS for file in home.glob(f"*/*/trials/*/{name}")]
    for owner, files in groupby(sorted(found), lambda file: file.parents[2]):
        with suppress(UserError):
            entries = Ledger(owner).entries
            for file in files:
                if (entry := entries.get(file.parent.name)) is not None and entry.ended:
                    yield file, entry.state
