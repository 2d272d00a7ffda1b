"""Checks for records and ledgers that cannot be read. They cannot be repaired."""

from __future__ import annotations

from collections.abc import Iterator

from mlcl.errors import UserError
from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import free_folders
from mlcl.service.engine.ledger import FORMAT_KEY, LEDGER, Ledger
from mlcl.service.runs.run_store import RECORD


def find_unreadable_records(scope: Scope) -> Iterator[Finding]:
    """Unreadable records and ledgers: such runs, sweeps and tables cannot be continued."""
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
