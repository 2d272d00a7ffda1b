"""The database of a home, with its runs, sweeps and tables, and the events of their commands."""

from mlcl.store.database import BACKUP, DATABASE, IMPORTING, KINDS, Database, read_event
from mlcl.store.runs import (
    LOCK,
    RESUMABLE,
    RunFolder,
    RunFolders,
    RunRecord,
    State,
    home_option,
    home_records,
    new_id,
)

__all__ = [
    "BACKUP",
    "DATABASE",
    "IMPORTING",
    "KINDS",
    "LOCK",
    "RESUMABLE",
    "Database",
    "RunFolder",
    "RunFolders",
    "RunRecord",
    "State",
    "home_option",
    "home_records",
    "new_id",
    "read_event",
]
