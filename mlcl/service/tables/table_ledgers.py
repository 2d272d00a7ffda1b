"""The ledgers of a home's tables: a search that one table has finished is not done again for another."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.runs.run_store import RunFolders
from mlcl.service.tables.tuned_cell import TunedCell


class TableLedgers:
    """Tells in which ledger a tuned cell of a table is."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def of(self, tuned: TunedCell, own: Ledger | None) -> Ledger | None:
        """The table's `own` once the search has begun there; else one that has all of it, or else the own."""
        if own is not None and own.trials(scope=tuned.scope):
            return own
        return next((ledger for ledger in self.all if tuned.is_whole_in(ledger)), own)

    @cached_property
    def all(self) -> list[Ledger]:
        """Those of all tables, the latest first, without what cannot be read: only its own table needs it."""
        found = []
        for folder, _ in RunFolders(self._home, "tables").records():
            try:
                found.append(Ledger(folder.path))
            except UserError:
                continue
        return found
