"""The missing runs of a table as a source of trainings for the engine."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.config import dump_job
from mlcl.service.engine.entries import End, Entry, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.engine.source import TrainingSource
from mlcl.service.tables.trainings import Key, TableRun
from mlcl.tracking import State


class CellsSource(TrainingSource):
    """Hands out the missing runs. `failed` has the entries that ended with a reason, by job and data."""

    stage = "table"
    store: SharedRuns

    def __init__(self, missing: Sequence[TableRun], ledger: Ledger, store: SharedRuns) -> None:
        self.store, self.failed = store, dict[Key, Entry]()
        self._ledger, self._waiting, self._total = ledger, list(missing), len(missing)
        self._runs: dict[str, TableRun] = {}
        self._ended = 0

    def start(self) -> tuple[int, int]:
        """Zero runs that have been done, and the number of missing ones."""
        return 0, self._total

    def next(self) -> Entry | None:
        """The entry of the next run: an interrupted one goes on."""
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
        """COMPLETE: the metrics of a run are read from its folder."""
        return End(State.COMPLETE)

    def on_end(self, entry: Entry) -> None:
        """Counts a run that has ended, and keeps an entry with a reason."""
        self._ended += entry.ended
        run = self._runs.get(entry.key)
        if run is not None and entry.reason:
            self.failed[run.key] = entry

    def left(self) -> int:
        """The number of runs that have not ended."""
        return self._total - self._ended
