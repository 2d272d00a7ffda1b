"""A tuned cell: the best settings of a search, trained with fresh seeds, whose test metrics the table shows.

A search that one table has finished is not repeated for another table of the home.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config import dump_job, job_hash
from mlcl.config.table.cells import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.results.cell_result import SearchResult
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.command import Command
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.entries import Entry, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.search.confirmation import best_candidate
from mlcl.service.search.confirmation_source import ChosenSettings, ConfirmationSource
from mlcl.service.search.plan_checks import check_plan
from mlcl.service.search.search_source import Search, SearchSource
from mlcl.service.search.space_versions import open_version
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.service.tables.origin import digest
from mlcl.service.tables.plan import TablePlan, check_metrics
from mlcl.tracking import State


class TunedCell:
    """The search and the confirmation of a cell. Raises UserError for a space or a job that cannot be used.

    `scope` marks their trainings in the ledger of a table. A cell with a `control` is searched once the
    control's search has ended.
    """

    def __init__(self, cell: Cell, table: TablePlan, home: Path, control: TunedCell | None = None) -> None:
        assert cell.tuning is not None
        if cell.tuning.space.search.stop is not None:
            raise UserError(
                "a table gives all methods equally many trials", key="search.stop", allowed="null"
            )
        self.cell, self.scope = cell, cell.id.replace("/", "_")  # no id has this sign
        self.control, self._follows, self._tuning = control, control is None, cell.tuning
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
        self._written = [cell.id, job_hash(self._plan.job), self._data.fingerprint, self._plan.space_text]
        if control is not None:
            self._plan = self._at(dump_job(cell.jobs[0]))  # as many points as with the control's values

    def _at(self, control: Mapping[str, Any]) -> SweepPlan:
        """The plan with the values of the control's best job."""
        job, tuning = self._tuning.follow(self.cell.jobs[0], control)
        return replace(self._plan, job=job, space=tuning.space, space_text=tuning.text)

    def follow(self, ledgers: Mapping[TunedCell, Ledger | None]) -> bool:
        """Takes the values of the control's best trial; returns whether there is one, or no control."""
        if self.control is not None:
            ledger = ledgers[self.control]
            best = None if ledger is None else self.control.found(ledger)
            self._follows = best is not None
            if best is not None:
                self._plan = self._at(best.job)
        return self._follows

    def found(self, ledger: Ledger) -> Entry | None:
        """The best complete trial of a search that has ended."""
        ended = sum(trial.ended for trial in ledger.counted(self.scope))
        return self.best(ledger) if ended >= self._plan.most else None

    @property
    def data(self) -> DatasetInfo:
        """The data set of the cell."""
        return self._data.dataset.info

    @property
    def identity(self) -> list[Any]:
        """The id, job, data and space of the cell, with those of its control and the keys that follow it.

        The number of trials is left out: it may grow.
        """
        if self.control is None:
            return self._written
        return [*self._written, self.control.identity, self._tuning.hold, self._tuning.start]

    @property
    def identity_hash(self) -> str:
        """Sixteen hex digits of `identity` and the seed keys. A ledger's head has them under `tuned`."""
        return digest([self.identity, self._seed_keys])

    def is_whole_in(self, ledger: Ledger) -> bool:
        """Whether a ledger has this search with as many trials, and all fresh seeds of its best trial."""
        if ledger.head.get("tuned", {}).get(self.scope) != self.identity_hash:
            return False
        if self.control is not None and not self._is_followed_in(ledger):
            return False
        seeds, trials = self.seeds(ledger), sum(trial.ended for trial in ledger.counted(self.scope))
        complete = sum(seed.state is State.COMPLETE for seed in seeds)
        return (trials, complete) == (self._plan.most, self._plan.seeds)

    def _is_followed_in(self, ledger: Ledger) -> bool:
        """Whether the search in a ledger has the values of the control."""
        versions = ledger.versions(self.scope)
        return self._follows and bool(versions) and versions[-1].space == self._plan.space_text

    @property
    def cost(self) -> dict[str, int]:
        """The most trainings and epochs, for the plan of the table."""
        epochs = self.most * self._plan.job.train.epochs
        return {"trials": self._plan.most, "seeds": self._plan.seeds, "most_epochs": epochs}

    @property
    def most(self) -> int:
        """The largest number of its trainings."""
        return self._plan.most + self._plan.seeds

    def remaining(self, ledger: Ledger | None) -> int:
        """The number of trainings that have not ended by a ledger; all without one."""
        if ledger is None:
            return self.most
        trials = sum(trial.ended for trial in ledger.counted(self.scope))
        return max(0, self._plan.most - trials) + self._plan.seeds - sum(e.ended for e in self.seeds(ledger))

    def seeds(self, ledger: Ledger) -> list[Entry]:
        """The trainings of the best trial so far with fresh seeds, one per seed, that have been started."""
        best = self.best(ledger)
        known = [] if best is None else ledger.seeds_of(scoped(self.scope, best_candidate(best).key))
        return known[: self._plan.seeds]

    def best(self, ledger: Ledger) -> Entry | None:
        """The best complete trial so far."""
        return next(iter(ranked(ledger.counted(self.scope), self._plan.space.mode)), None)

    def search(self, ledger: Ledger) -> SearchResult:
        """The result of the search so far."""
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
        """The reasons of fresh seeds that failed, or of trials where no seed was started."""
        entries = self.seeds(ledger) or ledger.trials(scope=self.scope)
        if self.control is not None and not self._follows and not entries:
            return [f"its control {self.control.cell.id} has no best trial"]
        return [entry.reason for entry in entries if entry.reason]

    def _confirmed(self, ledger: Ledger) -> bool:
        seeds = self.seeds(ledger)
        closed = {key for key, (state, _) in ledger.confirmation_states.items() if state is not State.STOPPED}
        return self.remaining(ledger) == 0 and all(seed.confirmation in closed for seed in seeds)

    def train(
        self, command: Command, engine: Engine, parent: str, ledgers: Mapping[TunedCell, Ledger]
    ) -> None:
        """Runs the search, then trains its best trial with fresh seeds; goes on with what a ledger has.

        The logs of its trainings are nested in the log `parent`. Nothing is trained without a best trial of
        the control, which `ledgers` has.
        """
        if not self.follow(ledgers):
            return
        plan, ledger, folder = self._plan, command.ledger, command.folder.path
        open_version(plan, ledger, engine.home, engine.reporter.note, self.scope)
        store = NestedTrials(ledger, folder, command.logs, self.data, plan.free, self.scope, parent)
        with command.stop.shielded():
            store.open_all()
            search = Search(plan, ledger, self.scope)
            if self.control is not None:
                search.start_at({})  # the job as written has the control's values; then the least weights
            store.close_all()
        if search.left():
            engine.run(SearchSource([search], store))
        best = search.best()
        if best is not None and not engine.stop() and not self._confirmed(ledger):
            first = plan.job.train.seed + 1
            chosen = ChosenSettings([best_candidate(best)], range(first, first + plan.seeds), self.scope)
            engine.run(ConfirmationSource(plan, ledger, store, [chosen], self._seed_keys))
