"""Checks of the home's database: damage, and runs of killed processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import new_file
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import all_folders, free_folders
from mlcl.service.engine.recovery import recover
from mlcl.store import BACKUP, DATABASE, Database, State

DAMAGED = "home.db.damaged"


def find_damaged_database(scope: Scope) -> Iterator[Finding]:
    """A home's database that is damaged or missing."""
    database, backup = Database(scope.home), scope.home / BACKUP
    try:
        database.check()
    except UserError as error:
        why = error.problem + (f": {error.found}" if error.found is not None else "")
        if error.key == "user_version":
            yield Finding(str(database.file), why, str(error.allowed))
        elif not backup.exists():
            cure = "restore a copy, or move the home away and begin anew; the results in MLflow stay"
            yield Finding(str(database.file), why, cure)
        else:
            cure = f"replaced by {BACKUP}, of the end of the last command; the damaged file is kept"
            yield Finding(str(database.file), why, cure, partial(_restore, scope.home))


def _restore(home: Path) -> None:
    """Takes the backup. Raises UserError where that is damaged, too, and where a command is at work."""
    if any(folder.is_owned for folder in all_folders(home)):
        raise UserError("a command is at work in this home", file=home)
    if (home / DATABASE).exists():
        (home / DATABASE).replace(home / DAMAGED)
    with new_file(home / DATABASE) as partial_file:
        partial_file.write_bytes((home / BACKUP).read_bytes())
    Database(home).check()


def find_dead_runs(scope: Scope) -> Iterator[Finding]:
    """Folders whose record says RUNNING and that no process has locked; one repair closes all."""

    def mend() -> None:
        recover(scope.home)

    try:
        found = [(folder, folder.record) for folder in free_folders(scope.home)]
    except UserError:
        return  # the check before has said that the database is damaged
    for folder, record in found:
        if record is not None and record.state is State.RUNNING:
            kind = f"{folder.path.parent.name.removesuffix('s')} {record.name}".strip()
            yield Finding(
                str(folder.path),
                f"the {kind} is RUNNING, but no process has it: it was killed",
                "set to STOPPED; the same command goes on with it",
                mend,
            )
