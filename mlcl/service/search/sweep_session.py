"""One command's work on a sweep: the search, then the confirmation. Each training is settled here."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlcl.service.engine.budget import Account
from mlcl.service.engine.forecasts import Forecasts
from mlcl.service.engine.ledger import Entry
from mlcl.service.engine.packing import Packing
from mlcl.service.engine.progress import Reporter
from mlcl.service.engine.stop_conditions import StopConditions
from mlcl.service.engine.trial import ENDED, REASON, VALUES, TrialTask
from mlcl.service.engine.trial_recorder import TrialRecorder
from mlcl.service.engine.tune_executor import MAX_RESTARTS, run_trainings
from mlcl.service.search.confirmation import Candidate, candidates, ranked
from mlcl.service.search.sampling import grid_size
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.service.search.sweep_run import SweepRun
from mlcl.tracking import State

BEAT_EVERY = 60.0
"""Seconds between signs of life in the ledger."""


class SweepSession:
    """The desk at which Tune asks. Everything is written down before it is answered."""

    def __init__(
        self,
        plan: SweepPlan,
        recorder: TrialRecorder,
        parent: SweepRun,
        packing: Packing,
        halt: StopConditions,
        account: Account,
        reporter: Reporter,
    ) -> None:
        self.plan, self.recorder, self.parent = plan, recorder, parent
        self.packing, self.halt, self.account, self.reporter = packing, halt, account, reporter
        self._ledger = recorder.ledger
        self._running: set[str] = set()
        self._source: Callable[[], Entry | None] = lambda: None
        self._test = False
        self._returned: list[Entry] = []
        self._unbegun: Counter[str] = Counter()
        self._beat = time.monotonic()
        self._confirmed = False
        self._forecasts = Forecasts(account, packing.concurrent, reporter.note)

    def search(self) -> None:
        """Goes on with the trials that were interrupted, then draws new ones, up to the plan's number."""
        generation = self._ledger.generations[-1].number
        base = self.plan.search_job()
        waiting = [trial for trial in self._ledger.trials(generation) if trial.resumable]
        done = len(self._ledger.trials(generation)) - len(waiting)
        self.reporter.best = self.best()
        total = done + len(waiting) + self._room()
        self.reporter.stage("search", done, total, self.packing.concurrent)

        def source() -> Entry | None:
            if waiting:
                return self.recorder.resume(waiting.pop(0))
            return self.recorder.draw(base) if self._room() > 0 else None

        self._run(source, total - done, test=False)

    def _room(self) -> int:
        """Trials that may still be drawn: a grid ends where each of its points has been tried."""
        space, generation = self.plan.space, self._ledger.generations[-1].number
        left = self.plan.trials - len(self._ledger.trials(generation))
        if not space.parameters:  # post-hoc keys alone: one training answers all of them
            return max(0, min(left, 1 - self.recorder.tried()))
        size = grid_size(space) if space.search.sampler == "brute_force" else None
        return max(0, left if size is None else min(left, size - self.recorder.tried()))

    def confirm(self) -> list[Candidate]:
        """Baselines, the job as written and the best found, each on the same fresh seeds."""
        counted = self._ledger.counted()
        if self.plan.seeds == 0 or not ranked(counted, self.plan.space.mode):
            return []
        chosen = candidates(self.plan, counted)
        known = self._ledger.groups.keys()
        if any(candidate.key not in known for candidate in chosen) and self.halt():
            # The search was cut short: what is best so far need not be the best found.
            return [candidate for candidate in chosen if candidate.key in known]
        # A setting's seeds one after another would let a stop leave some settings without any.
        for candidate in chosen:
            self.recorder.open_group(candidate.key, candidate.name, candidate.job, candidate.settings)
        self.recorder.tag_groups({candidate.key: candidate.label for candidate in chosen})
        entries = [
            self.recorder.open_seed(candidate.key, seed) for seed in self._seeds() for candidate in chosen
        ]
        waiting = [entry for entry in entries if entry.resumable]
        self.reporter.stage(
            "confirmation", len(entries) - len(waiting), len(entries), self.packing.concurrent
        )
        self._run(lambda: waiting.pop(0) if waiting else None, len(waiting), test=True)
        for candidate in chosen:
            self._close_group(candidate.key)
        self._confirmed = all(entry.ended for entry in entries)
        return chosen

    def _seeds(self) -> range:
        """None of them is the search's."""
        first = self.plan.job.train.seed + 1
        return range(first, first + self.plan.seeds)

    def _close_group(self, key: str) -> None:
        seeds = [entry.state for entry in self._ledger.seeds_of(key)]
        if any(state in (State.RUNNING, State.STOPPED, State.BUDGET) for state in seeds):
            self.recorder.close_group(key, *self._interrupted())
        elif all(state is State.COMPLETE for state in seeds):
            self.recorder.close_group(key, State.COMPLETE)
        else:
            self.recorder.close_group(key, State.FAILED, "not every seed is complete")

    def _run(self, source: Callable[[], Entry | None], most: int, *, test: bool) -> None:
        self._source, self._test = source, test
        while most > 0 and not self.halt():
            run_trainings(
                self, folder=self.recorder.folder, packing=self.packing, most=most, shield=self.halt.shielded
            )
            most = len(self._returned)

    def next(self) -> TrialTask | None:
        """The next training, unless the sweep is to end."""
        if self.halt():
            return None
        entry = self._returned.pop(0) if self._returned else self._source()
        return None if entry is None else self._task(entry)

    def _task(self, entry: Entry) -> TrialTask:
        trial_logs = self.recorder.trial_logs
        return TrialTask(
            key=entry.key,
            job=entry.job,
            folder=str((self.recorder.folder / "trials" / entry.key).resolve()),
            home=str(trial_logs.home.resolve()),
            log=f"{trial_logs.sweep}.{entry.key}",
            metric=self.plan.space.metric,
            scores=self.plan.scores,
            test=self._test,
            stop_file=str(self.halt.file.resolve()),
            cpus=self.packing.cpus,
            gpus=self.packing.gpus,
            cwd=str(Path.cwd()),
        )

    def begin(self, key: str) -> None:
        """A process begins with a training."""
        share = self.packing.workers
        cpus, gpus = self.packing.cpus * share, self.packing.gpus * share
        if key in self._running:
            self.account.end(key)
        self._running.add(key)
        self.account.begin(key, cpus, gpus)
        self.reporter.begin(self.recorder.begin(key, cpus, gpus))

    def rung(self, key: str, epoch: int, score: float) -> bool:
        """A validation's score; whether the training is to be stopped early."""
        entry = self._ledger.entries[key]
        again = epoch in dict(entry.rungs)
        early = self.recorder.rung(key, epoch, score)
        if again:  # a training that goes on reports everything anew
            return early
        self.reporter.rung(entry)
        if entry.number is not None:
            self._forecasts.rung(entry, epoch, self._left())
        return early

    def end(self, key: str, result: dict[str, Any]) -> None:
        """A training's last report; without one it was stopped early."""
        ended = State(result[ENDED]) if result else State.PRUNED
        if ended is State.STOPPED:
            self._close(key, *self._interrupted())
        elif ended is State.COMPLETE:
            self._close(key, ended, values=json.loads(result[VALUES]))
        else:
            self._close(key, ended, reason=result.get(REASON, ""))

    def died(self, key: str, reason: str) -> None:
        """A training that Tune gave up. One that never began met a dead process: it is handed out again."""
        if key in self._running or self._unbegun[key] >= MAX_RESTARTS:
            self._close(key, State.FAILED, reason)
            return
        self._unbegun[key] += 1
        self._returned.append(self._ledger.entries[key])

    def abort(self) -> bool:
        """Whether trainings that were asked to end did not."""
        now = time.monotonic()
        if now - self._beat > BEAT_EVERY:
            self._beat = now
            self._ledger.append("beat")
        return self.halt.overdue()

    def _interrupted(self) -> tuple[State, str]:
        """The state and reason of what could not go on: too many failures of others stop it, too."""
        state = State.BUDGET if self.halt.cause is State.BUDGET else State.STOPPED
        return state, self.halt.reason

    def _close(self, key: str, state: State, reason: str = "", values: list[float] | None = None) -> None:
        if self._ledger.entries[key].ended:
            return
        if key in self._running:
            self.account.end(key)
            self._running.discard(key)
        entry = self.recorder.close(key, state, values, reason)
        self.halt.count(entry.state, entry.reason)
        if entry.number is not None:
            self.reporter.best = self.best()
            self.parent.point(self._ledger, self.reporter.best)
            self._forecasts.ended([trial for trial in self._ledger.trials() if trial.ended], self._left())
        self.reporter.close(entry)

    def close_open(self) -> None:
        """Closes what is still RUNNING: the command ends."""
        failed: Exception | None = None
        state, reason = self._interrupted()
        for entry in list(self._ledger.entries.values()):
            if entry.state is State.RUNNING:
                try:
                    self._close(entry.key, state, reason)
                except Exception as error:  # one that cannot be told must not keep the others from it
                    failed = error
        for key in self._ledger.groups:
            if key not in self._ledger.group_states:
                self.recorder.close_group(key, state, reason)
        if failed is not None:
            raise failed

    def finished(self) -> bool:
        """Whether all that was asked for is there, whatever asked for an end meanwhile."""
        return self._left() == 0 and (self._confirmed or self.plan.seeds == 0 or self.best() is None)

    def best(self) -> Entry | None:
        """The best complete search trial."""
        found = ranked(self._ledger.counted(), self.plan.space.mode)
        return found[0] if found else None

    def _left(self) -> int:
        """Search trials that have not ended yet."""
        generation = self._ledger.generations[-1].number
        return self._room() + sum(trial.resumable for trial in self._ledger.trials(generation))
