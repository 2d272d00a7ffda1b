"""A table's cells as a source of trainings: one run for each seed of each cell."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.config import dump_job
from mlcl.service.engine.entries import End, Entry, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.engine.source import TrainingSource
from mlcl.service.tables.plan import Key, TableRun
from mlcl.tracking import State


class CellsSource(TrainingSource):
    """The runs that are missing. `failed` has the entries of those that did not end well, by job and data."""

    stage = "table"
    store: SharedRuns

    def __init__(self, missing: Sequence[TableRun], ledger: Ledger, store: SharedRuns) -> None:
        self.store, self.failed = store, dict[Key, Entry]()
        self._ledger, self._waiting, self._total = ledger, list(missing), len(missing)
        self._runs: dict[str, TableRun] = {}
        self._ended = 0

    def start(self) -> tuple[int, int]:
        """None has been done: what is there is not missing."""
        return 0, self._total

    def next(self) -> Entry | None:
        """The next run, new or gone on with."""
        if not self._waiting:
            return None
        run = self._waiting.pop(0)
        key = self.store.claim(run.job, run.data)
        self._runs[key] = run
        known = self._ledger.entries.get(key)
        if known is None or known.ended:
            return self._ledger.open(Training(key, run.label, dump_job(run.job), settings={}))
        return known

    def complete(self, entry: Entry, values: list[float]) -> End:  # noqa: ARG002
        """COMPLETE: its figures are read from its folder."""
        return End(State.COMPLETE)

    def on_end(self, entry: Entry) -> None:
        """Keeps the entry where there is a reason."""
        self._ended += entry.ended
        run = self._runs.get(entry.key)
        if run is not None and entry.reason:
            self.failed[run.key] = entry

    def left(self) -> int:
        """Runs that have not ended."""
        return self._total - self._ended
