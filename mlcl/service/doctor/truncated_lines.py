"""Last lines that a kill cut in half."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import FOLDER_LOCK, free_folders, held, holding, log_locks
from mlcl.service.engine.ledger import LEDGER
from mlcl.service.engine.trial_scores import SCORES
from mlcl.tracking.log import LOG

JOURNAL = "study.journal"


def find_torn(scope: Scope) -> Iterator[Finding]:
    """Harmless: nobody reads such a line, and the next one that is appended takes its place."""
    for path, locks in _files(scope.home):
        if _is_torn(path) and not held(*locks):
            yield Finding(
                str(path),
                "its last line was cut in half by a kill",
                "cut off; what it said never counted",
                partial(_cut, path, locks),
            )


def _files(home: Path) -> Iterator[tuple[Path, list[Path]]]:
    """All files of lines, each with the locks of those who append to it."""
    for folder in free_folders(home):
        lock = folder.path / FOLDER_LOCK
        for name in (LEDGER, JOURNAL):
            yield folder.path / name, [lock]
        for path in sorted(folder.path.glob(f"trials/*/{SCORES}")):
            yield path, [lock, path.with_name(FOLDER_LOCK)]
    for path in sorted((home / "logs").glob(f"*/{LOG}")):
        yield path, log_locks(home, path.parent.name)


def _is_torn(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def _cut(path: Path, locks: list[Path]) -> None:
    with holding(*locks) as mine:
        if not mine:
            return
        with path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # as those who append to a log do
            file.truncate(file.read().rfind(b"\n") + 1)
            os.fsync(file.fileno())
