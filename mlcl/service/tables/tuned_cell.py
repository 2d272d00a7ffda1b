"""A tuned cell of a table: the settings that its searches pick are trained on fresh seeds.

The table shows the test metrics of these trainings. A search that one table has finished is not repeated for
another table of the home.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.config.table.cells import Cell
from mlcl.data import DatasetInfo
from mlcl.data.validation_rows import redraws_validation
from mlcl.errors import UserError
from mlcl.results.cell_result import SearchResult
from mlcl.service.engine.command import Command
from mlcl.service.engine.engine import Engine
from mlcl.service.engine.entries import SpaceVersion
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.arms import SearchPlan, arm_search
from mlcl.service.search.confirmation import Candidate, most_raced
from mlcl.service.search.confirmation_source import ConfirmationSource
from mlcl.service.search.kept_files import KeptFiles
from mlcl.service.search.plan_checks import check_plan, epochs_each
from mlcl.service.search.search_source import Search, SearchSource
from mlcl.service.search.space_versions import open_version, space_hash
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.service.tables.cell_search import CellSearch, scores_of
from mlcl.service.tables.origin import digest
from mlcl.service.tables.plan import TablePlan, check_metrics
from mlcl.significance.roles import Role


class TunedCell:
    """The searches of a cell, and the trainings of their picked settings on fresh seeds.

    `scope` names the cell's first search in the ledger of a table. The searches of a cell with a `control`,
    another tuned cell, begin once those of the control have ended: each takes values from the control's
    search of the same number.
    """

    def __init__(self, cell: Cell, table: TablePlan, home: Path, control: TunedCell | None = None) -> None:
        assert cell.tuning is not None
        if cell.tuning.space.search.stop is not None:
            raise UserError(
                "a table gives all methods equally many trials", key="search.stop", allowed="null"
            )
        self.cell, self.scope = cell, cell.id.replace("/", "_")  # no id contains an underscore
        self.control, self._is_ready, self._tuning = control, control is None, cell.tuning
        self._seed_keys = table.table.seed_keys
        plan = SweepPlan(
            job=cell.jobs[0],
            space=cell.tuning.space,
            space_text=cell.tuning.text,
            name=f"{cell.row}, {cell.column}",
            trials=cell.tuning.trials,
            seeds=len(cell.jobs),
            confirm=cell.tuning.confirm,
            searches=cell.tuning.searches,
            knn_races=cell.tuning.race_seeds > 0 and bool(cell.tuning.space.posthoc),
            resources=table.resources,
        )
        self._job_data = check_plan(plan, home)
        check_metrics(cell, self._job_data, table.file, races_choose=plan.knn_races)
        self._plan = replace(plan, redraws=redraws_validation(self._job_data.dataset))
        self._identity = [
            cell.id,
            job_hash(plan.job),
            self._job_data.fingerprint,
            plan.space_text,
            plan.score,
        ]
        placeholder = None if control is None else dump_job(plan.job)  # a placeholder, with as many points
        self._searches = self._plan_searches([placeholder] * plan.searches)

    def _plan_searches(self, controls: Sequence[Mapping[str, Any] | None]) -> list[SearchPlan]:
        """Returns the cell's searches: one for each of `controls`, the control's picked jobs or None."""
        return [self._plan_search(number, job) for number, job in enumerate(controls, start=1)]

    def _plan_search(self, number: int, control: Mapping[str, Any] | None) -> SearchPlan:
        job, tuning = self.cell.jobs[0], self._tuning
        if control is not None:
            job, tuning = tuning.follow(job, control)
        settings = tuning.space.search.model_copy(update={"race_seeds": tuning.race_seeds})
        space = replace(tuning.space, search=settings)
        cell_plan = replace(self._plan, job=job, space=space, space_text=tuning.text)
        search = arm_search(self._plan, self.cell.id, Role.MODEL, number, cell_plan)
        if number == 1:
            return replace(search, scope=self.scope)
        named_plan = replace(search.plan, name=f"{self._plan.name}, search {number}")
        return replace(search, plan=named_plan, scope=f"{self.scope}_{number}")

    def searches(self, ledger: Ledger) -> list[CellSearch]:
        """Returns the searches with the trainings that a ledger has now."""
        return [CellSearch(search, ledger) for search in self._searches]

    def follow(self, ledgers: Mapping[TunedCell, Ledger | None]) -> bool:
        """Puts values of the control's picks into the searches' jobs; returns whether searches can begin."""
        if self.control is not None:
            ledger = ledgers[self.control]
            picks = [] if ledger is None else self.control.picks(ledger)
            self._is_ready = bool(picks)
            if picks:
                self._searches = self._plan_searches([dump_job(pick.job) for pick in picks])
        return self._is_ready

    def picks(self, ledger: Ledger) -> list[Candidate]:
        """Returns the picked setting of each search; an empty list until all trials and races have ended."""
        searches = self.searches(ledger)
        ended = all(search.ended_count >= search.search.plan.most_trials for search in searches)
        picks = [search.pick for search in searches] if ended else []
        return [] if None in picks else [pick for pick in picks if pick is not None]

    @property
    def data(self) -> DatasetInfo:
        """The data set of the cell."""
        return self._job_data.dataset.info

    @property
    def jobs(self) -> list[JobConfig]:
        """The job of each search."""
        return [search.plan.job for search in self._searches]

    @property
    def scopes(self) -> list[str]:
        """The names of the searches in the ledger."""
        return [search.scope for search in self._searches]

    @property
    def identity(self) -> list[Any]:
        """Id, job, data, space, score and control of the cell; the numbers of trials and seeds may change."""
        if self.control is None:
            return self._identity
        return [*self._identity, self.control.identity, self._tuning.hold, self._tuning.start]

    @property
    def identity_hash(self) -> str:
        """A hash of sixteen hex digits of `identity` and the seed keys, kept under `tuned` in a ledger."""
        return digest([self.identity, self._seed_keys])

    def is_whole_in(self, ledger: Ledger) -> bool:
        """Whether these searches are finished in a ledger, with all planned trials and fresh seeds."""
        if ledger.head.get("tuned", {}).get(self.scope) != self.identity_hash:
            return False
        if self.control is not None and not self._is_followed_in(ledger, starts=True):
            return False
        return all(search.is_whole for search in self.searches(ledger))

    def _is_followed_in(self, ledger: Ledger, *, starts: bool) -> bool:
        """Whether the searches in a ledger used the values that the control's settings now have.

        Without `starts`, the values of the first trials may be others, since a search that has begun is not
        repeated for them.
        """

        def is_used(plan: SweepPlan, version: SpaceVersion) -> bool:
            is_alike = not starts and version.space_hash == space_hash(plan.space, ())
            return is_alike or version.space == plan.space_text

        version_pairs = [(search.plan, ledger.versions(search.scope)) for search in self._searches]
        return self._is_ready and all(
            versions and is_used(plan, versions[-1]) for plan, versions in version_pairs
        )

    @property
    def cost(self) -> dict[str, int]:
        """The largest numbers of trainings by stage, and of epochs (`most_epochs`), for the table's plan."""
        parts = {
            "trials": sum(search.plan.most_trials for search in self._searches),
            "race": sum(map(most_raced, self._searches)),
            "seeds": sum(search.plan.seeds for search in self._searches),
        }
        epochs = self.most_trainings * max(map(epochs_each, self._searches))
        return {**{name: count for name, count in parts.items() if count}, "most_epochs": epochs}

    @property
    def most_trainings(self) -> int:
        """The largest number of trainings that the cell can have."""
        return sum(
            search.plan.most_trials + most_raced(search) + search.plan.seeds for search in self._searches
        )

    def count_left(self, ledger: Ledger | None) -> int:
        """Returns the number of trainings that have not ended in a ledger.

        It is `most_trainings` without a ledger, or if the searches there used other values than the control's
        present ones.
        """
        if ledger is None or (self.control is not None and not self._is_followed_in(ledger, starts=False)):
            return self.most_trainings
        return sum(search.left for search in self.searches(ledger))

    def settings(self, ledger: Ledger) -> dict[str, Any] | None:
        """Returns the values of the pick with the best validation score; None until a trial is complete."""
        return max(self.searches(ledger), key=lambda search: search.validation).settings

    def result(self, ledger: Ledger) -> SearchResult:
        """Returns the result of the searches so far; its scores are means over the searches."""
        searches = self.searches(ledger)
        trials = Counter(str(trial.state) for search in searches for trial in search.planned_trials)
        medians = [
            statistics.median(scores) for search in searches if (scores := scores_of(search.planned_trials))
        ]
        return SearchResult(
            metric=self._plan.score,
            mode=self._plan.space.mode,
            trials=dict(trials),
            median=_mean(medians),
            best=_mean(scores_of([search.best for search in searches if search.best is not None])),
            fresh=_mean(scores_of([seed for search in searches for seed in search.seeds])),
            searches=tuple(search.result for search in searches),
        )

    def reasons(self, ledger: Ledger) -> list[str]:
        """Returns the reasons why trainings on fresh seeds, or else trials, failed or were interrupted."""
        searches = self.searches(ledger)
        entries = [
            entry for search in searches for entry in search.seeds or ledger.trials(scope=search.search.scope)
        ]
        if self.control is not None and not self._is_ready and not entries:
            return [f"its control {self.control.cell.id} has no best trial"]
        return [entry.reason for entry in entries if entry.reason and not entry.same_as]

    def sources(
        self, command: Command, engine: Engine, parent: str, ledgers: Mapping[TunedCell, Ledger]
    ) -> Iterator[TrainingSource]:
        """Yields the sources of the searches, of their races, and of the picked settings on fresh seeds.

        Each source depends on the results of the earlier ones, whose trainings must have ended before the
        next source is taken. Yields nothing if the cell has a control that has not picked its settings in
        `ledgers`.
        """
        if not self.follow(ledgers):
            return
        plan, ledger, folder = self._plan, command.ledger, command.folder.path
        for search_plan in self._searches:
            open_version(search_plan.plan, ledger, engine.home, engine.reporter.note, search_plan.scope)
        store = NestedTrials(ledger, folder, command.logs, self.data, plan.free_keys, self.scopes, parent)
        keep = plan.job.tracking.keep
        kept_files = KeptFiles("confirmed" if keep == "best" else keep, ledger, store)
        with command.stop.shielded():
            store.open_all()
            searches = [Search(search_plan.plan, ledger, search_plan.scope) for search_plan in self._searches]
            if self.control is not None:
                for search in searches:
                    search.start_at({})  # the job as written has the control's values; then the least weights
            store.close_all()
        if sum(search.left() for search in searches):
            yield SearchSource(searches, store, kept_files)
        for race in (True, False):
            cell_searches = self.searches(ledger)
            groups = [search.race if race else search.confirmation for search in cell_searches]
            open_groups = [
                group
                for search, group in zip(cell_searches, groups, strict=True)
                if not search.is_closed(group)
            ]
            if open_groups and not engine.stop():
                settings = [group for group in groups if group.settings]
                yield ConfirmationSource(
                    plan, ledger, store, kept_files, settings, self._seed_keys, race=race
                )


def _mean(scores: Sequence[float]) -> float | None:
    return statistics.fmean(scores) if scores else None
