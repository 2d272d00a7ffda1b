"""Runs the trainings of any source on Ray Tune, which calls the engine's methods.

An event is written to the ledger first, then to the training's log; then the source is called, and last the
method returns to Tune.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from mlcl.service.engine.budget import Account, Forecasts
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Packing
from mlcl.service.engine.progress import Reporter
from mlcl.service.engine.source import Files, TrainingSource
from mlcl.service.engine.trial import ENDED, REASON, VALUES, TrialTask
from mlcl.service.engine.tune_executor import run_trainings
from mlcl.service.process.signals import STOP_FILE, StopRequest
from mlcl.service.ray.ddp_group import MAX_RESTARTS
from mlcl.tracking import State

Around = Callable[[], AbstractContextManager[None]]
GRACE = 30.0
"""Seconds that running trainings have to write a checkpoint before their processes are ended."""


class StopConditions:
    """Stops a command for a signal, a used-up budget, a full disk, or over `max_failed` failures in a row.

    `cause` is None until then; afterwards it is the state that the sweep or table ends in, with a `reason`.
    `file` is the stop file, for which running trainings look.
    """

    def __init__(self, folder: Path, stop: StopRequest, account: Account, max_failed: int | None) -> None:
        self.cause: State | None = None
        self.reason = ""
        self.file = folder / STOP_FILE
        self.file.unlink(missing_ok=True)
        self._stop, self._account, self._max_failed = stop, account, max_failed
        self._failed = 0
        self._since = 0.0

    def shielded(self) -> AbstractContextManager[None]:
        """Returns a context in which no signal interrupts the code."""
        return self._stop.shielded()

    def __call__(self) -> bool:
        """Whether the command is to stop, so that no more trainings are started."""
        if self.cause is None:
            if self._stop():
                self._set(State.STOPPED, "")
            elif self._account.over():
                self._set(State.BUDGET, "the budget is used up")
        return self.cause is not None

    def halt(self, reason: str) -> None:
        """Stops the command for a training that cannot go on and that the same command resumes later."""
        if self.cause is None:
            self._set(State.STOPPED, reason)

    def insist(self) -> None:
        """Sets the cause to STOPPED, after a second signal has ended the trainings immediately."""
        self.cause, self.reason = State.STOPPED, ""

    def overdue(self) -> bool:
        """Whether the command is to stop and running trainings have had `GRACE` seconds to do so."""
        return self() and time.monotonic() - self._since > GRACE

    def count(self, state: State, reason: str) -> None:
        """Counts the end of a training; more than `max_failed` failures in a row stop the command."""
        if state is State.FAILED:
            self._failed += 1
            if self._max_failed is not None and self._failed > self._max_failed and self.cause is None:
                text = f"{self._failed} trainings failed in a row, the limit is {self._max_failed}"
                self._set(State.FAILED, f"{text}; the last: {reason}")
        elif state in (State.COMPLETE, State.PRUNED):
            self._failed = 0

    def clear(self) -> None:
        """Removes the stop file."""
        self.file.unlink(missing_ok=True)

    def _set(self, cause: State, reason: str) -> None:
        self.cause, self.reason = cause, reason
        self._since = time.monotonic()
        self.file.touch()


BEAT_EVERY = 60.0
"""Seconds between `beat` events, which show in the ledger until when the command was alive."""
NONE_BEGINS = "Ray has begun no training for a minute: it has no room, or its processes do not start"


class Engine:
    """Runs sources of trainings, one after the other; called by `tune_executor`.

    `reason` formats an error without secrets. `models` says whether trainings keep model and embeddings
    beside their metrics.
    """

    def __init__(
        self,
        ledger: Ledger,
        home: Path,
        packing: Packing,
        stop: StopConditions,
        reporter: Reporter,
        forecasts: Forecasts,
        reason: Callable[[BaseException], str],
        models: bool = True,
    ) -> None:
        self.home, self.stop, self.reporter, self._reason = home, stop, reporter, reason
        self._ledger, self._packing, self._forecasts, self._models = ledger, packing, forecasts, models
        self._sources: Iterator[TrainingSource]
        self._source: TrainingSource | None = None
        self._running: set[str] = set()
        self._pruned: set[str] = set()
        self._handed: set[str] = set()
        self._noted: set[str] = set()
        self._returned: list[Entry] = []
        self._waiting: dict[str, list[Entry]] = {}
        """Trainings that wait for the results of a running one with the same job, by that one's key."""
        self._exhausted = self._finished = False
        self._unbegun: Counter[str] = Counter()
        self._beat = time.monotonic()
        self._unstarted: set[str] = set()
        """The trainings that waited for a process at the last beat, if none ran then."""

    def run(self, sources: Iterable[TrainingSource], around: Around = nullcontext) -> None:
        """Runs all trainings of the sources, one source after the other, in the same processes.

        The context `around` is entered before the first training and left after the last. A source starts
        when all trainings of the previous one have ended. After a request to stop, `start` and `end` of the
        remaining sources are called, but nothing is trained. No entry is left RUNNING.
        """
        self._sources, self._returned = iter(sources), []
        try:
            with ExitStack() as stack:
                while self._advance():
                    self._finished = False
                    try:
                        stack.enter_context(around())
                        around = nullcontext
                        folder, shield = self._ledger.folder, self.stop.shielded
                        run_trainings(self, folder=folder, packing=self._packing, shield=shield)
                    except KeyboardInterrupt:
                        self.stop.insist()
        finally:
            self._sources = iter(())  # frees what a generator holds, such as locks of folders
            with self.stop.shielded():
                self._end_source()

    def _advance(self) -> bool:
        """Ends the present source and starts the next one with trainings; returns whether there is one."""
        with self.stop.shielded():
            self._end_source()
            for source in self._sources:
                self._source = source
                n_ended, total = source.start()
                self.reporter.start_stage(source.stage, n_ended, total, self._packing.concurrent)
                self._exhausted = n_ended >= total
                if not self._exhausted and not self.stop():
                    return True
                self._end_source()
        return False

    def interrupted(self) -> tuple[State, str]:
        """Returns the state and reason of interrupted trainings: BUDGET, or STOPPED for any other cause."""
        state = State.BUDGET if self.stop.cause is State.BUDGET else State.STOPPED
        return state, self.stop.reason

    def _end_source(self) -> None:
        """Closes the entries that are RUNNING, and ends the source. Errors are announced and not raised."""
        self.stop.clear()
        if self._source is None:
            return
        status = self.interrupted()
        for entry in list(self._ledger.entries.values()):
            if entry.state is State.RUNNING:
                self._try(partial(self._close, self._source, entry, _unfinished(entry, *status)))
        self._try(partial(self._source.end, *status))
        self._source = None
        self._handed.clear()

    def _try(self, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:
            self.reporter.note(f"not all was logged ({self._reason(error)}); the next command logs the rest")

    def next(self) -> TrialTask | None:
        """Returns the next training to start; None if there is none now, or the command is about to end."""
        while self._source is not None and not self.stop():
            entry = self._returned.pop(0) if self._returned else None
            if entry is None and not self._exhausted:
                entry = self._source.next()
            if entry is not None:
                self._source.store.open(entry)
                if self._takes_results(self._source, entry):
                    continue
                self._handed.add(entry.key)
                return self._task(self._source, entry)
            self._exhausted = True
            if self._handed:
                return None
            self._advance()
        self._finished = True
        return None

    def _takes_results(self, source: TrainingSource, entry: Entry) -> bool:
        """Closes a training with its twin's results, or makes it wait for them; returns whether it did so."""
        twin = source.twin(entry)
        if twin is None:
            return False
        if twin.ended:
            self._close(source, entry, twin.results)
        elif twin.key in self._handed:
            self._waiting.setdefault(twin.key, []).append(entry)
        return twin.ended or twin.key in self._handed

    def finished(self) -> bool:
        """Whether there will be no more trainings; called after `next` has returned None."""
        return self._finished

    def _task(self, source: TrainingSource, entry: Entry) -> TrialTask:
        packing = self._packing
        files = source.files(entry) if self._models else Files("figures")
        return TrialTask(
            key=entry.key,
            job=entry.job,
            folder=str(source.store.folder(entry).resolve()),
            home=str(self.home.resolve()),
            log=source.store.log(entry),
            metric=entry.job["evaluation"]["metric"],
            scores=tuple(source.scores),
            test=source.test,
            stop_file=str(self.stop.file.resolve()),
            cpus=packing.cpus,
            gpus=packing.gpus,
            cwd=str(Path.cwd()),
            stored=files.stored,
            logged=files.logged,
        )

    def begin(self, key: str) -> None:
        """Writes that a process starts a training. Raises RuntimeError if the training has ended already."""
        entry = self._ledger.entries[key]
        if entry.ended:
            raise RuntimeError(f"{entry.label} is {entry.state} and cannot begin again")
        packing = self._packing
        cpus, gpus = packing.cpus * packing.workers, packing.gpus * packing.workers
        self._running.add(key)
        self._ledger.append("begin", key=key, cpus=cpus, gpus=gpus)
        self._current.store.on_start(entry)
        self.reporter.tell("begin", entry)

    def report(self, key: str, epoch: int, score: float) -> bool:
        """Writes an intermediate value, unless it is known. Returns whether the training is stopped early."""
        entry = self._ledger.entries[key]
        repeated = epoch in dict(entry.intermediate)  # a resumed training reports its earlier values again
        if not repeated:
            self._ledger.append("value", key=key, epoch=epoch, score=score)
        pruned = self._current.prune(entry, epoch, score)
        if pruned:
            self._pruned.add(key)
        if not repeated:
            self.reporter.tell("rung", entry)
            trainings_left = self._current.left()
            if trainings_left is not None:
                self._forecasts.report(entry, epoch, trainings_left)
        return pruned

    def note(self, key: str, text: str) -> None:
        """Shows a note of a training to the user, unless a note with this text was shown before."""
        if text in self._noted:
            return
        self._noted.add(text)
        self.reporter.note(f"{self._ledger.entries[key].label}: {text}")

    def end(self, key: str, result: dict[str, Any]) -> None:
        """Closes a training with its last report, which is empty if it was pruned or its process ended."""
        entry, source = self._ledger.entries[key], self._current
        default = State.PRUNED if key in self._pruned else State.STOPPED
        state = State(result[ENDED]) if result else default
        if state is State.COMPLETE and not entry.ended:
            self._close(source, entry, source.complete(entry, json.loads(result.get(VALUES, "[]"))))
        elif state is State.STOPPED:
            if reason := result.get(REASON):
                self.stop.halt(reason)
            self._close(source, entry, _unfinished(entry, *self.interrupted()))
        else:
            self._close(source, entry, _unfinished(entry, state, result.get(REASON, "")))

    def on_died(self, key: str, reason: str) -> None:
        """Closes a training that Tune gave up on; if it never began, queues it again, MAX_RESTARTS times."""
        entry, source = self._ledger.entries[key], self._current
        if key in self._running or self._unbegun[key] >= MAX_RESTARTS:
            conflict = source.store.owner_changed(entry)
            state = State.STOPPED if conflict else State.FAILED
            self._close(source, entry, _unfinished(entry, state, conflict or reason))
        elif entry.state is State.RUNNING:
            self._unbegun[key] += 1
            self._handed.discard(key)
            self._returned.append(entry)

    def abort(self) -> bool:
        """Whether all processes must end, as a stop takes longer than `GRACE`. Also writes `beat` events."""
        now = time.monotonic()
        if now - self._beat > BEAT_EVERY:
            self._beat = now
            self._ledger.append("beat")
            previous, self._unstarted = self._unstarted, set() if self._running else set(self._handed)
            if previous and previous == self._unstarted:
                self.reporter.note(NONE_BEGINS)
        return self.stop.overdue()

    @property
    def _current(self) -> TrainingSource:
        assert self._source is not None
        return self._source

    def _close(self, source: TrainingSource, entry: Entry, end: End) -> None:
        self._handed.discard(entry.key)
        if entry.ended:
            return
        self._running.discard(entry.key)
        source.store.close(entry, end)
        source.on_end(entry)
        self.stop.count(entry.state, entry.reason)
        trainings_left, entries = source.left(), self._ledger.entries.values()
        if trainings_left is not None:
            trials = (run for run in entries if run.ended and run.confirmation is None and not run.same_as)
            self._forecasts.on_training_end(trials, trainings_left)
        self.reporter.tell("close", entry)
        for duplicate in self._waiting.pop(entry.key, []):
            if entry.ended and not self._takes_results(source, duplicate):
                self._returned.append(duplicate)


def _unfinished(entry: Entry, state: State, reason: str) -> End:
    """Returns an end without final metrics; its score is that of the last validation, if there is one."""
    return End(state, reason, score=entry.intermediate[-1][1] if entry.intermediate else None)
