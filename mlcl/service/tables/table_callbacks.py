"""The trainings of a table, at the desk where Tune asks for them: each is a run like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config import dump_job
from mlcl.service.engine.packing import Packing
from mlcl.service.engine.progress_events import ProgressListener
from mlcl.service.engine.stop_conditions import StopConditions
from mlcl.service.engine.trial import ENDED, REASON, TrialTask
from mlcl.service.engine.tune_executor import MAX_RESTARTS, run_trainings
from mlcl.service.runs.run_job import start_log, usable_log
from mlcl.service.runs.run_store import RunFolder, RunFolders, RunRecord, now
from mlcl.service.tables.plan import Key, TableRun
from mlcl.service.tables.progress import TableProgress
from mlcl.tracking import Provenance, RunLog, State, shown
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.names import Tag

PATIENCE = 5.0
"""Seconds that a dead process may hold its folder."""


@dataclass(frozen=True)
class Place:
    """Where trainings are written down and logged: in the store `uri`, below the log `parent`."""

    home: Path
    uri: str
    parent: str
    source: Provenance
    delivery: Delivery


class TableCallbacks:
    """Hands out the trainings that are missing, and writes down what becomes of them.

    `scratch` is for Tune. `failures` has the reasons of those that did not end well, by training.
    """

    def __init__(
        self,
        runs: Sequence[TableRun],
        *,
        place: Place,
        scratch: Path,
        packing: Packing,
        halt: StopConditions,
        watch: ProgressListener,
    ) -> None:
        self.failures: dict[Key, str] = {}
        self._waiting = list(runs)
        self._place, self._scratch = place, scratch
        self._packing, self._halt = packing, halt
        self._open: dict[str, tuple[TableRun, RunFolder]] = {}
        self._held: dict[str, ExitStack] = {}
        self._began: set[str] = set()
        self._unbegun: Counter[str] = Counter()
        self._progress = TableProgress(len(runs), packing.concurrent, watch)

    def work(self) -> None:
        """Trains all that is missing, unless a stop is asked for."""
        while self._waiting and not self._halt():
            run_trainings(
                self,
                folder=self._scratch,
                packing=self._packing,
                most=len(self._waiting),
                shield=self._halt.shielded,
            )

    def next(self) -> TrialTask | None:
        """The next training, in the folder of its interrupted run where there is one."""
        if self._halt() or not self._waiting:
            return None
        run = self._waiting.pop(0)
        folder = self._take(run)
        log = self._start(run, folder)
        key = folder.path.name
        self._open[key] = (run, folder)
        return TrialTask(
            key=key,
            job=dump_job(run.job),
            folder=str(folder.path.resolve()),
            home=str(self._place.home.resolve()),
            log=log.id,
            metric=run.job.evaluation.metric,
            scores=(),
            test=True,
            stop_file=str(self._halt.file.resolve()),
            cpus=self._packing.cpus,
            gpus=self._packing.gpus,
        )

    def _take(self, run: TableRun) -> RunFolder:
        """A folder, held until a process begins in it: RUNNING without a holder is what a kill leaves."""
        folders = RunFolders(self._place.home)
        folder = folders.unfinished(*run.key) or folders.new()
        lock = ExitStack()
        if not lock.enter_context(folder.owned()):
            # Another command took it up a moment ago.
            lock.close()
            folder = folders.new()
            lock.enter_context(folder.owned())
        self._held[folder.path.name] = lock
        return folder

    def _release(self, key: str) -> None:
        if key in self._held:
            self._held.pop(key).close()

    def _start(self, run: TableRun, folder: RunFolder) -> RunLog:
        name, before, place = folder.path.name, folder.record, self._place
        job_hash, fingerprint = run.key
        id = usable_log(place.home, name, place.uri)
        folder.write(
            RunRecord(
                id=name,
                experiment=run.job.experiment,
                job_hash=job_hash,
                fingerprint=fingerprint,
                state=State.RUNNING,
                log=id,
                tracking_uri=shown(place.uri),
                created=before.created if before else now(),
            )
        )
        log = start_log(
            place.home,
            place.uri,
            run.job,
            run.data,
            id=id,
            name=name,
            owner=name,
            source=place.source,
            parent=place.parent,
            tags={Tag.KIND: "cell", Tag.CELL: run.label},
        )
        log.reopen()
        place.delivery.add(log.id)
        return log

    def begin(self, key: str) -> None:
        """A process begins with a training."""
        self._release(key)
        self._began.add(key)
        self._progress.begin(key, self._open[key][0])

    def rung(self, key: str, epoch: int, score: float) -> bool:
        """A validation's score; no training of a table is stopped early."""
        self._progress.rung(key, epoch, score)
        return False

    def end(self, key: str, result: dict[str, Any]) -> None:
        """A training's last report; without one its process was ended."""
        state = State(result[ENDED]) if result else State.STOPPED
        self._close(key, state, result.get(REASON, ""))

    def died(self, key: str, reason: str) -> None:
        """A training that Tune gave up. One that never began met a dead process: it is handed out again."""
        run, folder = self._open[key]
        self._release(key)
        if key not in self._began and self._unbegun[key] < MAX_RESTARTS:
            self._unbegun[key] += 1
            self._waiting.append(run)
            return
        with folder.owned(PATIENCE) as free:
            if free:
                self._close(key, State.FAILED, reason)
            else:  # whoever holds it answers for its state
                self._ended(key, State.FAILED, f"another command trains in {folder.path}")

    def abort(self) -> bool:
        """Whether trainings that were asked to end did not."""
        return self._halt.overdue()

    def close_open(self) -> None:
        """Closes what is still RUNNING: the command ends."""
        for key in list(self._open):
            self._close(key, State.STOPPED, "")

    def _close(self, key: str, state: State, reason: str) -> None:
        if key not in self._open:
            return
        _, folder = self._open[key]
        record = folder.record
        # The log first: after a kill in between the next command takes the state from there.
        RunLog.attach(self._place.home, record.log if record else key).finish(state, reason)
        folder.set_state(state)
        self._ended(key, state, reason)

    def _ended(self, key: str, state: State, reason: str) -> None:
        run, _ = self._open.pop(key)
        self._release(key)
        if state is State.FAILED:
            self.failures[run.key] = reason
        self._halt.count(state, reason)
        self._progress.close(key, run, state, reason)
