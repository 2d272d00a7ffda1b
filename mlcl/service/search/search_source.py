"""A search as a source of trainings: trials are drawn with Optuna and pruned early."""

from __future__ import annotations

from collections.abc import Callable

from mlcl.config import dump_job, flatten, load_job
from mlcl.config.space.search import SAMPLERS
from mlcl.results.sweep_result import ranked
from mlcl.service.engine.entries import End, Entry, Training, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.pruner import ReplayPruner
from mlcl.service.search.sampling import exact, grid_size, start
from mlcl.service.search.scoring import score_training
from mlcl.service.search.study import draw_trial
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.tracking import State


class SearchSource(TrainingSource):
    """Goes on with the trials that were interrupted, then draws new ones, up to the plan's number.

    The search `scope` has the space of its last version in the ledger. The constructor replays the ledger to
    the pruner, and closes a trial that the pruner stopped just before a kill. `trial_closed` is called after
    each end.
    """

    stage = "search"
    test = False
    store: NestedTrials

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        store: NestedTrials,
        trial_closed: Callable[[], None] = lambda: None,
        scope: str = "",
    ) -> None:
        self.store, self.scores = store, plan.scores
        self._plan, self._ledger, self._trial_closed = plan, ledger, trial_closed
        self._job = plan.search_job()
        self._flat = flatten(dump_job(self._job))
        self._start = start(plan.space, self._flat)
        self.scope, self._version = scope, ledger.versions(scope)[-1]
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
            if entry.resumable and entry.version == self._version.number:
                self._ledger.close(key, End(State.PRUNED, score=entry.rungs[-1][1]))
                self._tell_pruner(entry)

    def _trials(self) -> list[Entry]:
        """Those of the present space."""
        return self._ledger.trials(self._version.number, self.scope)

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

    def start(self) -> tuple[int, int]:
        """Trials that have ended, and all that there are and may still be drawn."""
        trials = self._trials()
        self._waiting = [trial for trial in trials if trial.resumable]
        return len(trials) - len(self._waiting), len(trials) + self._room()

    def next(self) -> Entry | None:
        """An interrupted trial, then a new one."""
        if self._waiting:
            return self._waiting.pop(0)
        if self._room() <= 0:
            return None
        settings, trial = draw_trial(self._plan.space, self._version, self._trials(), self._start)
        job = load_job(dump_job(self._job), settings)
        if trial.params == self._start:  # the very job: its way through the space costs the last digits
            settings, job = exact(settings, self._flat), self._job
        number = len(self._ledger.trials(scope=self.scope))
        return self._ledger.open(
            Training(
                key=scoped(self.scope, f"trial-{number:04d}"),
                label=f"{self._plan.name}, trial {number}" if self.scope else f"trial {number}",
                job=dump_job(job),
                settings=dict(settings),
                version=self._version.number,
                number=number,
                scope=self.scope,
                params=trial.params,
                system_attrs=trial.system_attrs,
            )
        )

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:
        """What the pruner says."""
        assert entry.number is not None
        return self._pruner.rung(entry.number, epoch, score)

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Score, figures and chosen post-hoc keys."""
        return score_training(self._plan, entry, self.store.folder(entry), values)

    def closed(self, entry: Entry) -> None:
        """Tells the pruner."""
        if entry.ended:
            self._tell_pruner(entry)
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
        """Different points of the present space that were drawn, or kept from earlier trials."""
        points = [each.params for each in self._trials()]
        points += [each.params for each in self._version.kept.values()]
        return len({frozenset(point.items()) for point in points})
