"""Checks for runs, sweeps and tables whose process was killed."""

from __future__ import annotations

from collections.abc import Iterator

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import free_folders
from mlcl.service.engine.recovery import recover
from mlcl.tracking import State


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
