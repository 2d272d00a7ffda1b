"""The trainings of a table, at the desk where Tune asks for them: each is a run like any other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcl.config import dump_job
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.halt import Halt
from mlcl.service.packing import Packing
from mlcl.service.reproduce.plan import TableRun
from mlcl.service.single import start_log, usable_log
from mlcl.service.trial import ENDED, REASON, TrialTask
from mlcl.service.tuning import MAX_RESTARTS, run_work
from mlcl.service.watch import Kind, Progress, Row, SweepEvent, Watcher
from mlcl.tracking import Provenance, RunLog, State, shown
from mlcl.tracking.delivery import Delivery


class TableDesk:
    """Hands out the trainings that are missing, and writes down what becomes of them.

    `parent` is the log of the table, under which they stand in MLflow. `failures` has the reasons of the
    FAILED ones by training.
    """

    def __init__(
        self,
        runs: Sequence[TableRun],
        *,
        home: Path,
        scratch: Path,
        uri: str,
        parent: str,
        source: Provenance,
        delivery: Delivery,
        packing: Packing,
        halt: Halt,
        watch: Watcher,
    ) -> None:
        self.failures: dict[tuple[str, str], str] = {}
        self._waiting = list(runs)
        self._total = len(runs)
        self._home, self._scratch, self._uri, self._parent = home, scratch, uri, parent
        self._source, self._delivery, self._packing = source, delivery, packing
        self._halt, self._watch = halt, watch
        self._open: dict[str, tuple[TableRun, RunFolder]] = {}
        self._rows: dict[str, Row] = {}
        self._began: dict[str, float] = {}
        self._seconds: list[float] = []
        self._ended = 0
        self._unbegun: Counter[str] = Counter()

    def work(self) -> None:
        """Trains all that is missing, unless a stop is asked for."""
        self._tell("stage", text=f"{self._total} trainings, up to {self._packing.concurrent} at once")
        while self._waiting and not self._halt():
            run_work(
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
        job_hash, fingerprint = run.key
        folders = RunFolders(self._home)
        folder = folders.unfinished(job_hash, fingerprint) or folders.new()
        log = self._start(run, folder)
        key = folder.path.name
        self._open[key] = (run, folder)
        return TrialTask(
            key=key,
            job=dump_job(run.job),
            folder=str(folder.path.resolve()),
            home=str(self._home.resolve()),
            log=log.id,
            metric=run.job.evaluation.metric,
            scores=run.metrics,
            test=True,
            stop_file=str(self._halt.file.resolve()),
            cpus=self._packing.cpus,
            gpus=self._packing.gpus,
        )

    def _start(self, run: TableRun, folder: RunFolder) -> RunLog:
        name, before = folder.path.name, folder.record
        job_hash, fingerprint = run.key
        id = usable_log(self._home, name, self._uri)
        folder.write(
            RunRecord(
                id=name,
                experiment=run.job.experiment,
                job_hash=job_hash,
                fingerprint=fingerprint,
                state=State.RUNNING,
                log=id,
                tracking_uri=shown(self._uri),
                created=before.created if before else name.split("-", 1)[1],
            )
        )
        log = start_log(
            self._home,
            self._uri,
            run.job,
            run.data,
            id=id,
            name=name,
            owner=name,
            source=self._source,
            parent=self._parent,
            tags={"mlcl.kind": "cell", "mlcl.cell": run.label},
        )
        log.reopen()
        self._delivery.add(log.id)
        return log

    def begin(self, key: str) -> None:
        """A process begins with a training."""
        run, _ = self._open[key]
        self._began[key] = time.monotonic()
        metric = run.job.evaluation.metric
        self._rows[key] = Row(run.label, State.RUNNING, 0, run.job.train.epochs, None, 0.0, metric=metric)
        self._tell("begin", self._rows[key])

    def rung(self, key: str, epoch: int, score: float) -> bool:
        """A validation's score; no training of a table is stopped early."""
        run, _ = self._open[key]
        metric, epochs = run.job.evaluation.metric, run.job.train.epochs
        seconds = time.monotonic() - self._began.get(key, time.monotonic())
        self._rows[key] = Row(run.label, State.RUNNING, epoch, epochs, score, seconds, metric=metric)
        self._tell("rung", self._rows[key])
        return False

    def end(self, key: str, result: dict[str, Any]) -> None:
        """A training's last report; without one its process was ended."""
        state = State(result[ENDED]) if result else State.STOPPED
        self._close(key, state, result.get(REASON, ""))

    def died(self, key: str, reason: str) -> None:
        """A training that Tune gave up. One that never began met a dead process: it is handed out again."""
        if key in self._began or self._unbegun[key] >= MAX_RESTARTS:
            self._close(key, State.FAILED, reason)
            return
        self._unbegun[key] += 1
        self._waiting.append(self._open[key][0])

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
        run, folder = self._open.pop(key)
        record = folder.record
        log = RunLog.attach(self._home, record.log if record else key)
        # The log first: after a kill in between the next command takes the state from there.
        log.finish(state, reason)
        folder.set_state(state)
        began = self._began.pop(key, None)
        seconds = 0.0 if began is None else time.monotonic() - began
        if state is State.FAILED:
            self.failures[run.key] = reason
        if state is not State.STOPPED:
            self._ended += 1
            self._seconds.append(seconds)
        self._halt.count(state, reason)
        epochs = run.job.train.epochs
        row = self._rows.pop(key, Row(run.label, state, 0, epochs, None, 0.0))
        epoch = epochs if state is State.COMPLETE else row.epoch
        metric = run.job.evaluation.metric
        self._tell("close", Row(run.label, state, epoch, epochs, row.score, seconds, reason, metric))

    def _tell(self, kind: Kind, row: Row | None = None, text: str = "") -> None:
        left = self._total - self._ended
        mean = sum(self._seconds) / len(self._seconds) if self._seconds else None
        progress = Progress(
            stage="table",
            done=self._ended,
            total=self._total,
            metric="score",
            running=tuple(self._rows.values()),
            seconds_left=None if mean is None else mean * left / max(1, self._packing.concurrent),
        )
        self._watch(SweepEvent(kind, text, row=row, progress=progress))
