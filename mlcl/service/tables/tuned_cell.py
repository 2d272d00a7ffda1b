"""A tuned cell: its figures are those of the best setting that a search finds, on fresh seeds.

A search that one table has finished is not done again for another table of the home.
"""

from __future__ import annotations

import statistics
from collections import Counter
from functools import cached_property
from pathlib import Path

from mlcl.config import job_hash
from mlcl.config.table import Cell
from mlcl.data import DatasetInfo
from mlcl.results.sweep_result import ranked
from mlcl.results.table_result import SearchResult
from mlcl.service.engine.command import Command
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.entries import Entry, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.search.confirmation import best_candidate
from mlcl.service.search.confirmation_source import ConfirmationSource
from mlcl.service.search.search_source import Search, SearchSource
from mlcl.service.search.space_versions import open_version
from mlcl.service.search.sweep_plan import SweepPlan, check_plan
from mlcl.service.tables.origin import digest
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table_checks import check_metrics
from mlcl.store import RunFolders
from mlcl.tracking import State


class TunedCell:
    """A cell's search and its confirmation, as `scope` in the ledger. Raises UserError for bad input."""

    def __init__(self, cell: Cell, table: TablePlan, home: Path) -> None:
        assert cell.tuning is not None
        self.cell, self.scope = cell, cell.id.replace("/", "_")  # no id has this sign
        self._seed_keys = table.table.seed_keys
        self._plan = SweepPlan(
            job=cell.jobs[0],
            space=cell.tuning.space,
            space_text=cell.tuning.text,
            name=f"{cell.row}, {cell.column}",
            trials=cell.tuning.trials,
            seeds=len(cell.jobs),
            resources=table.resources,
        )
        self._data = check_plan(self._plan, home)
        check_metrics(cell, self._data, table.file)

    @property
    def data(self) -> DatasetInfo:
        """Its data set."""
        return self._data.dataset.info

    @property
    def identity(self) -> list[str]:
        """What tells it from another; more trials go on with it."""
        return [self.cell.id, job_hash(self._plan.job), self._data.fingerprint, self._plan.space_text]

    @property
    def identity_hash(self) -> str:
        """Sixteen hex digits of it and of the seeds' keys: a ledger's head has them under `tuned`."""
        return digest([self.identity, self._seed_keys])

    def is_whole_in(self, ledger: Ledger) -> bool:
        """Whether a ledger has this very search, of as many trials, and all fresh seeds of the best."""
        if ledger.head.get("tuned", {}).get(self.scope) != self.identity_hash:
            return False
        seeds, trials = self.seeds(ledger), sum(trial.ended for trial in ledger.counted(self.scope))
        complete = sum(seed.state is State.COMPLETE for seed in seeds)
        return (trials, complete) == (self._plan.most, self._plan.seeds)

    @property
    def cost(self) -> dict[str, int]:
        """Trainings and epochs at most, for the plan of the table."""
        epochs = self.most * self._plan.job.train.epochs
        return {"trials": self._plan.most, "seeds": self._plan.seeds, "most_epochs": epochs}

    @property
    def most(self) -> int:
        """How many trainings it takes at most."""
        return self._plan.most + self._plan.seeds

    def left(self, ledger: Ledger | None) -> int:
        """How many of them have not ended, by the ledger where there is one."""
        if ledger is None:
            return self.most
        trials = sum(trial.ended for trial in ledger.counted(self.scope))
        return max(0, self._plan.most - trials) + self._plan.seeds - sum(e.ended for e in self.seeds(ledger))

    def seeds(self, ledger: Ledger) -> list[Entry]:
        """The confirmation trainings of the best trial so far, one a seed, as far as they are open."""
        best = self.best(ledger)
        known = [] if best is None else ledger.seeds_of(scoped(self.scope, best_candidate(best).key))
        return known[: self._plan.seeds]

    def best(self, ledger: Ledger) -> Entry | None:
        """The best complete trial so far."""
        return next(iter(ranked(ledger.counted(self.scope), self._plan.space.mode)), None)

    def search(self, ledger: Ledger) -> SearchResult:
        """What the search came to so far."""
        trials, best = ledger.counted(self.scope), self.best(ledger)
        complete, fresh = (
            [each.score for each in entries if each.state is State.COMPLETE and each.score is not None]
            for entries in (trials, self.seeds(ledger))
        )
        return SearchResult(
            metric=self._plan.score,
            mode=self._plan.space.mode,
            trials=dict(Counter(str(trial.state) for trial in trials)),
            median=statistics.median(complete) if complete else None,
            best=None if best is None else best.score,
            fresh=statistics.fmean(fresh) if fresh else None,
        )

    def reasons(self, ledger: Ledger) -> list[str]:
        """Why trainings that are needed have no figures."""
        seeds = self.seeds(ledger)
        failed = seeds or ledger.trials(scope=self.scope)
        return [entry.reason for entry in failed if entry.reason]

    def _confirmed(self, ledger: Ledger) -> bool:
        seeds = self.seeds(ledger)
        closed = {key for key, (state, _) in ledger.confirmation_states.items() if state is not State.STOPPED}
        return self.left(ledger) == 0 and all(seed.confirmation in closed for seed in seeds)

    def train(self, command: Command, engine: Engine, parent: str) -> None:
        """Searches, then trains the best on fresh seeds; what is done is only told again, as after a kill.

        Its logs are nested in the log `parent`.
        """
        plan, ledger, folder = self._plan, command.ledger, command.folder.path
        open_version(plan, ledger, engine.home, engine.reporter.note, self.scope)
        data = self._data.dataset.info
        store = NestedTrials(ledger, folder, command.logs, data, plan.free, self.scope, parent)
        with command.stop.shielded():
            store.open_all()
            search = Search(plan, ledger, self.scope)
            store.close_all()
        if search.left():
            engine.run(SearchSource([search], store))
        best = search.best()
        if best is not None and not engine.stop() and not self._confirmed(ledger):
            chosen = [best_candidate(best)]
            engine.run(ConfirmationSource(plan, ledger, store, chosen, self.scope, self._seed_keys))


def tuned_cells(plan: TablePlan, home: Path) -> list[TunedCell]:
    """The cells of a table that are tuned. Raises UserError for whatever is wrong with one."""
    return [TunedCell(cell, plan, home) for cell in plan.cells if cell.tuning is not None]


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
        """The ledgers of all tables, the latest first."""
        return [Ledger(folder.path) for folder, _ in RunFolders(self._home, "tables").records()]
