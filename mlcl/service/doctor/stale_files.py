"""Checks for files and folders that a killed process left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import FOLDER_LOCK, KINDS, free_folders, hold_locks, is_locked, log_locks
from mlcl.service.engine.stop_conditions import STOP_FILE

MADE = ("data", "models", "reports", "cache/features")
"""Folders with data sets, exported models, reports and frozen inputs; their locks are beside them."""


def find_partial_files(scope: Scope) -> Iterator[Finding]:
    """Partial files without a living writer. They have no final name, so that no command reads them."""
    for path, locks in _partial_files(scope.home):
        if not is_locked(*locks):
            yield _removable(path, "half-written: its writer was killed", locks)


def find_stale_files(scope: Scope) -> Iterator[Finding]:
    """Ray's folders and requests to stop, of commands that were killed."""
    for folder in free_folders(scope.home):
        locks = [folder.path / FOLDER_LOCK]
        for path in sorted(folder.path.glob("ray-*")):
            yield _removable(path, "Ray Tune's folder of a command that was killed", locks)
        for path in sorted({*folder.path.glob(STOP_FILE), *folder.path.glob(f"trials/*/{STOP_FILE}")}):
            yield _removable(path, "a request to stop, of a command that was killed", locks)


def _partial_files(home: Path) -> Iterator[tuple[Path, list[Path]]]:
    """All partial files, each with the locks of its possible writers."""
    for kind in KINDS:
        for path in sorted((home / kind).glob("*/**/.*.partial")):
            yield path, _folder_locks(home / kind, path)
    for path in sorted((home / "logs").glob("*/**/.*.partial")):
        yield path, log_locks(home, path.relative_to(home / "logs").parts[0])
    for path in sorted(path for kind in MADE for path in (home / kind).glob(".*.partial-*")):
        name = path.name.rpartition(".partial-")[0]
        yield path, [path.with_name(f"{name}.lock")]


def _folder_locks(root: Path, path: Path) -> list[Path]:
    """The locks of the run, sweep and training that a file belongs to."""
    inside = [parent for parent in path.parents if root in parent.parents]
    return [folder / FOLDER_LOCK for folder in inside if folder.parent.name in (*KINDS, "trials")]


def _removable(path: Path, why: str, locks: list[Path]) -> Finding:
    return Finding(str(path), why, "removed", partial(_remove, path, locks))


def _remove(path: Path, locks: list[Path]) -> None:
    with hold_locks(*locks) as mine:
        if not mine:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
