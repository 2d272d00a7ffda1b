"""The database of a home: which runs, sweeps and tables there are, and what their commands have done."""

from mlcl.store.database import BACKUP, DATABASE, Database
from mlcl.store.runs import (
    KINDS,
    LOCK,
    RESUMABLE,
    RunFolder,
    RunFolders,
    RunRecord,
    State,
    home_records,
    new_id,
)

__all__ = [
    "BACKUP",
    "DATABASE",
    "KINDS",
    "LOCK",
    "RESUMABLE",
    "Database",
    "RunFolder",
    "RunFolders",
    "RunRecord",
    "State",
    "home_records",
    "new_id",
]
