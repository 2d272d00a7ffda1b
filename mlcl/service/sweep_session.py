"""One command's work on a sweep: the search, then the confirmation. Each training is settled here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mlcl.service.book import Book
from mlcl.service.budget import Account
from mlcl.service.confirm import Candidate, candidates, ranked
from mlcl.service.draw import grid_size
from mlcl.service.forecasts import Forecasts
from mlcl.service.halt import Halt
from mlcl.service.ledger import Entry
from mlcl.service.packing import Packing
from mlcl.service.parent import ParentRun
from mlcl.service.progress import Reporter
from mlcl.service.sweep_plan import SweepPlan
from mlcl.service.trial import ENDED, REASON, VALUES, TrialTask
from mlcl.service.tuning import run_work
from mlcl.tracking import State


class SweepSession:
    """The desk at which Tune asks. Everything is written down before it is answered."""

    def __init__(
        self,
        plan: SweepPlan,
        book: Book,
        parent: ParentRun,
        packing: Packing,
        halt: Halt,
        account: Account,
        reporter: Reporter,
    ) -> None:
        self.plan, self.book, self.parent = plan, book, parent
        self.packing, self.halt, self.account, self.reporter = packing, halt, account, reporter
        self._ledger = book.ledger
        self._running: set[str] = set()
        self._source: Callable[[], Entry | None] = lambda: None
        self._test = False
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
                return self.book.resume(waiting.pop(0))
            return self.book.draw(base) if self._room() > 0 else None

        self._run(source, total - done, test=False)

    def _room(self) -> int:
        """Trials that may still be drawn: a grid ends where each of its points has been tried."""
        space, generation = self.plan.space, self._ledger.generations[-1].number
        left = self.plan.trials - len(self._ledger.trials(generation))
        size = grid_size(space) if space.search.sampler == "brute_force" else None
        return max(0, left if size is None else min(left, size - self.book.tried()))

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
            self.book.open_group(candidate.key, candidate.label, candidate.job, candidate.settings)
        entries = [self.book.open_seed(candidate.key, seed) for seed in self._seeds() for candidate in chosen]
        waiting = [entry for entry in entries if entry.resumable]
        self.reporter.stage(
            "confirmation", len(entries) - len(waiting), len(entries), self.packing.concurrent
        )
        self._run(lambda: waiting.pop(0) if waiting else None, len(waiting), test=True)
        for candidate in chosen:
            self._close_group(candidate.key)
        return chosen

    def _seeds(self) -> range:
        """None of them is the search's."""
        first = self.plan.job.train.seed + 1
        return range(first, first + self.plan.seeds)

    def _close_group(self, key: str) -> None:
        seeds = [entry.state for entry in self._ledger.seeds_of(key)]
        if any(state in (State.RUNNING, State.STOPPED, State.BUDGET) for state in seeds):
            self.book.close_group(key, *self._interrupted())
        elif all(state is State.COMPLETE for state in seeds):
            self.book.close_group(key, State.COMPLETE)
        else:
            self.book.close_group(key, State.FAILED, "not every seed is complete")

    def _run(self, source: Callable[[], Entry | None], most: int, *, test: bool) -> None:
        if most < 1 or self.halt():
            return
        self._source, self._test = source, test
        run_work(self, folder=self.book.folder, packing=self.packing, most=most)

    def next(self) -> TrialTask | None:
        """The next training, unless the sweep is to end."""
        if self.halt():
            return None
        entry = self._source()
        return None if entry is None else self._task(entry)

    def _task(self, entry: Entry) -> TrialTask:
        teller = self.book.teller
        return TrialTask(
            key=entry.key,
            job=entry.job,
            folder=str((self.book.folder / "trials" / entry.key).resolve()),
            home=str(teller.home.resolve()),
            log=f"{teller.sweep}.{entry.key}",
            metric=self.plan.space.metric,
            scores=self.plan.scores,
            test=self._test,
            stop_file=str(self.halt.file.resolve()),
            cpus=self.packing.cpus,
            gpus=self.packing.gpus,
        )

    def begin(self, key: str) -> None:
        """A process begins with a training."""
        share = self.packing.workers
        cpus, gpus = self.packing.cpus * share, self.packing.gpus * share
        if key in self._running:
            self.account.end(key)
        self._running.add(key)
        self.account.begin(key, cpus, gpus)
        self.reporter.begin(self.book.begin(key, cpus, gpus))

    def rung(self, key: str, epoch: int, score: float) -> bool:
        """A validation's score; whether the training is to be stopped early."""
        early = self.book.rung(key, epoch, score)
        entry = self._ledger.entries[key]
        self.reporter.rung(entry)
        if entry.number is not None:
            self._forecasts.rung(entry, epoch, self._left())
        return early

    def end(self, key: str, result: dict[str, Any]) -> None:
        """A training's last report; without one it was stopped early, by the judge or by the halt."""
        ended = State(result[ENDED]) if result else State.PRUNED
        if not result and self.halt.overdue():
            ended = State.STOPPED
        if ended is State.STOPPED:
            self._close(key, *self._interrupted())
        elif ended is State.COMPLETE:
            self._close(key, ended, values=json.loads(result[VALUES]))
        else:
            self._close(key, ended, reason=result.get(REASON, ""))

    def died(self, key: str) -> None:
        """A training whose processes died once too often."""
        self._close(key, State.FAILED, reason="its process died again and again (killed, or out of memory)")

    def abort(self) -> bool:
        """Whether trainings that were asked to end did not."""
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
        entry = self.book.close(key, state, values, reason)
        self.halt.count(entry.state, entry.reason)
        if entry.number is not None:
            self.reporter.best = self.best()
            self.parent.curve(self._ledger)
            self._forecasts.ended([trial for trial in self._ledger.trials() if trial.ended], self._left())
        self.reporter.close(entry)

    def close_open(self, state: State, reason: str) -> None:
        """Closes what is still RUNNING: the command ends."""
        for entry in list(self._ledger.entries.values()):
            if entry.state is State.RUNNING:
                self.book.close(entry.key, state, reason=reason)
        for key in self._ledger.groups:
            if key not in self._ledger.group_states:
                self.book.close_group(key, state, reason)

    def best(self) -> Entry | None:
        """The best complete search trial."""
        found = ranked(self._ledger.counted(), self.plan.space.mode)
        return found[0] if found else None

    def _left(self) -> int:
        """Search trials that have not ended yet."""
        generation = self._ledger.generations[-1].number
        return self._room() + sum(trial.resumable for trial in self._ledger.trials(generation))
