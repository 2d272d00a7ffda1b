"""A search as a source of trainings: trials are drawn from an Optuna study and pruned early."""

from __future__ import annotations

from collections.abc import Callable

import optuna

from mlcl.config import dump_job, flatten, load_job
from mlcl.config.space import SAMPLERS
from mlcl.errors import UserError
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.entries import End, Entry, Training, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.pruner import ReplayPruner
from mlcl.service.search.sampling import draw, exact, grid_size, start
from mlcl.service.search.scoring import score_training
from mlcl.service.search.study import ask, reopen, sync_study
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State


class SearchSource(TrainingSource):
    """Goes on with the trials that were interrupted, then draws new ones, up to the plan's number.

    `study` is that of the last space version of the search `scope`. The constructor replays the ledger to the
    pruner, and closes a trial that the pruner stopped just before a kill. `trial_closed` is called after
    each end.
    """

    stage = "search"
    test = False
    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        study: optuna.Study,
        store: NestedTrials,
        trial_closed: Callable[[], None] = lambda: None,
        scope: str = "",
    ) -> None:
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._study, self._trial_closed = plan, ledger, study, trial_closed
        self._job = plan.search_job()
        self._flat = flatten(dump_job(self._job))
        self._start = start(plan.space, self._flat)
        self.scope, self._version = scope, ledger.versions(scope)[-1].number
        self._waiting: list[Entry] = []
        self._pruner = ReplayPruner(
            plan.space.search,
            plan.space.mode,
            epochs=self._job.train.epochs,
            every=self._job.evaluation.every,
            name=plan.name,
        )
        self._replay()

    def _replay(self) -> None:
        counted = {entry.key: entry for entry in self._ledger.counted(self.scope)}
        stopped = set()
        for event, key, epoch in list(self._ledger.history):
            entry = counted.get(key)
            if entry is None or entry.number is None:
                continue
            if event == "close":
                self._pruner.close(entry.number, entry.state, entry.score)
            elif self._pruner.rung(entry.number, epoch, dict(entry.rungs)[epoch]):
                stopped.add(key)
        for key in stopped:
            entry = counted[key]
            if entry.resumable and entry.version == self._version:
                self._ledger.close(key, End(State.PRUNED, score=entry.rungs[-1][1]))
                self._tell_pruner(entry)

    def _trials(self) -> list[Entry]:
        """Those of the present space."""
        return self._ledger.trials(self._version, self.scope)

    def _tell_pruner(self, entry: Entry) -> None:
        assert entry.number is not None
        self._pruner.close(entry.number, entry.state, entry.score)

    @property
    def waits(self) -> bool:
        """Whether an interrupted trial is to be gone on with."""
        return bool(self._waiting)

    @property
    def drawn(self) -> int:
        """Trials of the present space so far."""
        return len(self._trials())

    def sync(self) -> None:
        """Brings the study to what the ledger says: a kill may have cut that short.

        Raises UserError where the study was deleted, or an older copy of it was put back.
        """
        there = len(self._study.get_trials(deepcopy=False))
        known = 1 + max((entry.study_number or 0 for entry in self._trials()), default=-1)
        if there < known:
            raise UserError(
                "its Optuna study has lost trials",
                key="--study",
                found=f"{there} in {self._study.study_name}",
                allowed=f"{known}: a copy of it, or `--fresh --warm-start {self._ledger.head['id']}`, which "
                "takes the trials over",
            )
        for entry in self._trials():
            sync_study(self._study, entry)

    def start(self) -> tuple[int, int]:
        """Trials that have ended, and all that there are and may still be drawn."""
        trials = self._trials()
        self._waiting = [trial for trial in trials if trial.resumable]
        return len(trials) - len(self._waiting), len(trials) + self._room()

    def next(self) -> Entry | None:
        """An interrupted trial, then a new one."""
        if self._waiting:
            entry = self._waiting.pop(0)
            assert entry.study_number is not None
            reopen(self._study, entry.study_number)  # before new ones: not every sampler knows what waits
            return entry
        return self._draw() if self._room() > 0 else None

    def _draw(self) -> Entry:
        known = [e.study_number for e in self._trials() if e.study_number is not None]
        trial = ask(self._study, known)
        settings = draw(self._plan.space, trial)
        job = load_job(dump_job(self._job), settings)
        if trial.params == self._start:  # the very job: its way through the space costs the last digits
            settings, job = exact(settings, self._flat), self._job
        number = len(self._ledger.trials(scope=self.scope))
        entry = self._ledger.open(
            Training(
                key=scoped(self.scope, f"trial-{number:04d}"),
                label=f"{self._plan.name}, trial {number}" if self.scope else f"trial {number}",
                job=dump_job(job),
                settings=dict(settings),
                version=self._version,
                number=number,
                study_number=trial.number,
                scope=self.scope,
            )
        )
        sync_study(self._study, entry)
        return entry

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:
        """What the pruner says."""
        assert entry.number is not None
        return self._pruner.rung(entry.number, epoch, score)

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Score, figures and chosen post-hoc keys."""
        return score_training(self._plan, entry, self.store.folder(entry), values)

    def closed(self, entry: Entry) -> None:
        """Pruner and study are told."""
        if entry.ended:
            self._tell_pruner(entry)
        sync_study(self._study, entry)
        self._trial_closed()

    def left(self) -> int:
        """Trials that have not ended yet."""
        return self._room() + sum(trial.resumable for trial in self._trials())

    def best(self) -> Entry | None:
        """The best complete trial of those that compare in the present space."""
        found = ranked(self._ledger.counted(self.scope), self._plan.space.mode)
        return found[0] if found else None

    def _room(self) -> int:
        """Trials that may still be drawn: a grid ends where each of its points has been tried."""
        space = self._plan.space
        left = self._plan.trials - len(self._trials())
        if not space.parameters:  # post-hoc keys alone: one training answers all of them
            return max(0, min(left, 1 - self._tried()))
        size = grid_size(space) if SAMPLERS[space.search.sampler].exhaustive else None
        return max(0, left if size is None else min(left, size - self._tried()))

    def _tried(self) -> int:
        """Different points of the space that the study knows, those of earlier trials that fit included."""
        known = {entry.study_number for entry in self._trials()}
        return len(
            {
                frozenset(trial.params.items())
                for trial in self._study.get_trials(deepcopy=False)
                if trial.number in known or trial.state.is_finished()
            }
        )
