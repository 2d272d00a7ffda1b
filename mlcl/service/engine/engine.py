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
        self._stop_request, self._account, self._max_failed = stop, account, max_failed
        self._failure_count = 0
        self._stop_time = 0.0

    def shielded(self) -> AbstractContextManager[None]:
        """Returns a context in which no signal interrupts the code."""
        return self._stop_request.shielded()

    def __call__(self) -> bool:
        """Whether the command is to stop, so that no more trainings are started."""
        if self.cause is None:
            if self._stop_request():
                self._set_cause(State.STOPPED, "")
            elif self._account.is_used_up():
                self._set_cause(State.BUDGET, "the budget is used up")
        return self.cause is not None

    def halt(self, reason: str) -> None:
        """Stops the command for a training that cannot go on and that the same command resumes later."""
        if self.cause is None:
            self._set_cause(State.STOPPED, reason)

    def insist(self) -> None:
        """Sets the cause to STOPPED, after a second signal has ended the trainings immediately."""
        self.cause, self.reason = State.STOPPED, ""

    def overdue(self) -> bool:
        """Whether the command is to stop and running trainings have had `GRACE` seconds to do so."""
        return self() and time.monotonic() - self._stop_time > GRACE

    def count(self, state: State, reason: str) -> None:
        """Counts the end of a training; more than `max_failed` failures in a row stop the command."""
        if state is State.FAILED:
            self._failure_count += 1
            if self._max_failed is not None and self._failure_count > self._max_failed and self.cause is None:
                text = f"{self._failure_count} trainings failed in a row, the limit is {self._max_failed}"
                self._set_cause(State.FAILED, f"{text}; the last: {reason}")
        elif state in (State.COMPLETE, State.PRUNED):
            self._failure_count = 0

    def clear(self) -> None:
        """Removes the stop file."""
        self.file.unlink(missing_ok=True)

    def _set_cause(self, cause: State, reason: str) -> None:
        self.cause, self.reason = cause, reason
        self._stop_time = time.monotonic()
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
        self._ledger, self._packing, self._forecasts, self._keeps_models = ledger, packing, forecasts, models
        self._sources: Iterator[TrainingSource]
        self._source: TrainingSource | None = None
        self._running_keys: set[str] = set()
        self._pruned_keys: set[str] = set()
        self._open_keys: set[str] = set()
        self._shown_notes: set[str] = set()
        self._requeued_entries: list[Entry] = []
        self._waiting_twins: dict[str, list[Entry]] = {}
        """Trainings that wait for the results of a running one with the same job, by that one's key."""
        self._exhausted = self._finished = False
        self._unbegun_counts: Counter[str] = Counter()
        self._beat_time = time.monotonic()
        self._idle_keys: set[str] = set()
        """The trainings that waited for a process at the last beat, if none ran then."""

    def run(self, sources: Iterable[TrainingSource], around: Around = nullcontext) -> None:
        """Runs all trainings of the sources, one source after the other, in the same processes.

        The context `around` is entered before the first training and left after the last. A source starts
        when all trainings of the previous one have ended. After a request to stop, `start` and `end` of the
        remaining sources are called, but nothing is trained. No entry is left RUNNING.
        """
        self._sources, self._requeued_entries = iter(sources), []
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
                self._try_close(partial(self._close, self._source, entry, _unfinished_end(entry, *status)))
        self._try_close(partial(self._source.end, *status))
        self._source = None
        self._open_keys.clear()

    def _try_close(self, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:
            self.reporter.note(f"not all was logged ({self._reason(error)}); the next command logs the rest")

    def next(self) -> TrialTask | None:
        """Returns the next training to start; None if there is none now, or the command is about to end."""
        while self._source is not None and not self.stop():
            entry = self._requeued_entries.pop(0) if self._requeued_entries else None
            if entry is None and not self._exhausted:
                entry = self._source.next()
            if entry is not None:
                self._source.store.open(entry)
                if self._takes_results(self._source, entry):
                    continue
                self._open_keys.add(entry.key)
                return self._make_task(self._source, entry)
            self._exhausted = True
            if self._open_keys:
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
        elif twin.key in self._open_keys:
            self._waiting_twins.setdefault(twin.key, []).append(entry)
        return twin.ended or twin.key in self._open_keys

    def finished(self) -> bool:
        """Whether there will be no more trainings; called after `next` has returned None."""
        return self._finished

    def _make_task(self, source: TrainingSource, entry: Entry) -> TrialTask:
        packing = self._packing
        files = source.files(entry) if self._keeps_models else Files("figures")
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
        self._running_keys.add(key)
        self._ledger.append("begin", key=key, cpus=cpus, gpus=gpus)
        self._current_source.store.on_start(entry)
        self.reporter.tell("begin", entry)

    def report(self, key: str, epoch: int, score: float) -> bool:
        """Writes an intermediate value, unless it is known. Returns whether the training is stopped early."""
        entry = self._ledger.entries[key]
        repeated = epoch in dict(entry.intermediate)  # a resumed training reports its earlier values again
        if not repeated:
            self._ledger.append("value", key=key, epoch=epoch, score=score)
        pruned = self._current_source.prune(entry, epoch, score)
        if pruned:
            self._pruned_keys.add(key)
        if not repeated:
            self.reporter.tell("rung", entry)
            trainings_left = self._current_source.left()
            if trainings_left is not None:
                self._forecasts.report(entry, epoch, trainings_left)
        return pruned

    def note(self, key: str, text: str) -> None:
        """Shows a note of a training to the user, unless a note with this text was shown before."""
        if text in self._shown_notes:
            return
        self._shown_notes.add(text)
        self.reporter.note(f"{self._ledger.entries[key].label}: {text}")

    def end(self, key: str, result: dict[str, Any]) -> None:
        """Closes a training with its last report, which is empty if it was pruned or its process ended."""
        entry, source = self._ledger.entries[key], self._current_source
        default = State.PRUNED if key in self._pruned_keys else State.STOPPED
        state = State(result[ENDED]) if result else default
        if state is State.COMPLETE and not entry.ended:
            self._close(source, entry, source.complete(entry, json.loads(result.get(VALUES, "[]"))))
        elif state is State.STOPPED:
            if reason := result.get(REASON):
                self.stop.halt(reason)
            self._close(source, entry, _unfinished_end(entry, *self.interrupted()))
        else:
            self._close(source, entry, _unfinished_end(entry, state, result.get(REASON, "")))

    def on_died(self, key: str, reason: str) -> None:
        """Closes a training that Tune gave up on; if it never began, queues it again, MAX_RESTARTS times."""
        entry, source = self._ledger.entries[key], self._current_source
        if key in self._running_keys or self._unbegun_counts[key] >= MAX_RESTARTS:
            conflict = source.store.owner_changed(entry)
            state = State.STOPPED if conflict else State.FAILED
            self._close(source, entry, _unfinished_end(entry, state, conflict or reason))
        elif entry.state is State.RUNNING:
            self._unbegun_counts[key] += 1
            self._open_keys.discard(key)
            self._requeued_entries.append(entry)

    def abort(self) -> bool:
        """Whether all processes must end, as a stop takes longer than `GRACE`. Also writes `beat` events."""
        now = time.monotonic()
        if now - self._beat_time > BEAT_EVERY:
            self._beat_time = now
            self._ledger.append("beat")
            previous, self._idle_keys = self._idle_keys, set() if self._running_keys else set(self._open_keys)
            if previous and previous == self._idle_keys:
                self.reporter.note(NONE_BEGINS)
        return self.stop.overdue()

    @property
    def _current_source(self) -> TrainingSource:
        assert self._source is not None
        return self._source

    def _close(self, source: TrainingSource, entry: Entry, end: End) -> None:
        self._open_keys.discard(entry.key)
        if entry.ended:
            return
        self._running_keys.discard(entry.key)
        source.store.close(entry, end)
        source.on_end(entry)
        self.stop.count(entry.state, entry.reason)
        trainings_left, entries = source.left(), self._ledger.entries.values()
        if trainings_left is not None:
            trials = (run for run in entries if run.ended and run.confirmation is None and not run.same_as)
            self._forecasts.on_training_end(trials, trainings_left)
        self.reporter.tell("close", entry)
        for duplicate in self._waiting_twins.pop(entry.key, []):
            if entry.ended and not self._takes_results(source, duplicate):
                self._requeued_entries.append(duplicate)


def _unfinished_end(entry: Entry, state: State, reason: str) -> End:
    """Returns an end without final metrics; its score is that of the last validation, if there is one."""
    return End(state, reason, score=entry.intermediate[-1][1] if entry.intermediate else None)
