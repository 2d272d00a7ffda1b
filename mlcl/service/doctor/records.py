"""Checks the records of runs, sweeps and tables: some cannot be read, and some are of killed processes."""

from __future__ import annotations

from collections.abc import Iterator

from mlcl.errors import UserError
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import free_folders
from mlcl.service.engine.ledger import FORMAT_KEY, LEDGER, Ledger
from mlcl.service.engine.recovery import recover
from mlcl.service.runs.run_store import RECORD
from mlcl.tracking import State


def find_unreadable_records(scope: Scope) -> Iterator[Finding]:
    """Unreadable records and ledgers: such runs, sweeps and tables cannot be continued or repaired."""
    for folder in free_folders(scope.home):
        if (folder.path / RECORD).exists() and folder.record is None:
            yield Finding(
                str(folder.path / RECORD),
                "the record cannot be read",
                "restore it, or move the folder away; its command then starts anew",
            )
        if (folder.path / LEDGER).exists():
            try:
                Ledger(folder.path)
            except UserError as error:
                why = f"{error.key} of the ledger cannot be read ({error.found})"
                cure = "restore it, or give the sweep's command --fresh"
                if folder.path.parent.name == "tables":
                    cure = "restore it, or move the folder away; finished runs are kept"
                if error.key == FORMAT_KEY:
                    why, cure = error.problem, f"format {error.allowed}"
                yield Finding(str(folder.path / LEDGER), why, cure)


def find_dead_runs(scope: Scope) -> Iterator[Finding]:
    """Folders whose record says RUNNING and that no process has locked; one repair closes all."""

    def mend() -> None:
        recover(scope.home)

    for folder in free_folders(scope.home):
        record = folder.record
        if record is not None and record.state is State.RUNNING:
            kind = f"{folder.path.parent.name.removesuffix('s')} {record.name}".strip()
            yield Finding(
                str(folder.path),
                f"the {kind} is RUNNING, but no process has it: it was killed",
                "set to STOPPED; the same command goes on with it",
                mend,
            )
