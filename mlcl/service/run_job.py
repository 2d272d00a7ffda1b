"""One job as one run: in this process for one worker, in a Ray worker group for several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.config import JobConfig, job_hash
from mlcl.errors import MachineError
from mlcl.service.engine.checkpoints import drop_checkpoint
from mlcl.service.engine.recovery import backed_up, recover
from mlcl.service.process.signals import StopRequest, stop_on_signal
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import RunLog, State, mlflow_listener, provenance
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.names import Tag
from mlcl.tracking.provenance import submitted_id
from mlcl.tracking.tracker import Tracker
from mlcl.training.checkpoint import CHECKPOINT, UnreadableCheckpointError
from mlcl.training.context import Context, pick_device
from mlcl.training.events import Diverged, Listener, Stopped, tell_all
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.run_files import result_files


@dataclass(frozen=True)
class RunReport:
    """What became of a run.

    `undelivered` logs, of this run and earlier ones, wait for an MLflow that answers; `mlflow_run_id` is
    None where this one has never got there.
    """

    id: str
    state: State
    folder: Path
    log: str
    metrics: dict[str, float]
    resumed: bool
    reason: str = ""
    mlflow_run_id: str | None = None
    undelivered: int = 0


def run_job(
    job: JobConfig,
    *,
    home: Path,
    listener: Listener,
    fresh: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    stop: StopRequest | None = None,
) -> RunReport:
    """Runs `job`, or goes on with its interrupted run; `fresh` starts anew in any case.

    `stop` is that of a caller which runs several jobs; without it, signals are listened to here.
    Raises UserError before any resource is taken. A NaN, an exception or a stop ends in a true state.
    MLflow must answer at the beginning; from then on nothing waits for it but the very end, for a moment.
    """
    job_data = JobData.of(job, home)
    for note in job_data.dataset.info.notes:
        announce(f"data: {note}")
    if job.train.workers == 1:
        pick_device(job.train.device)
    tracker = Tracker(home)
    tracker.experiment(job.experiment)
    recover(home)
    signals = stop_on_signal(announce) if stop is None else nullcontext(stop)
    with signals as wish, backed_up(home, announce), Delivery(tracker, announce) as delivery:
        delivery.add_undelivered()
        logs = JobLogs(home, tracker.uri, provenance(), delivery.add)
        run = _Run(job_data, home, logs, listener, wish, announce)
        try:
            report = run.in_folder(fresh)
        finally:
            with wish.shielded():
                left = delivery.drain(stop=wish)
        return replace(report, mlflow_run_id=delivery.run_id(report.log), undelivered=left)


@dataclass
class _Run:
    """One call of `run_job`."""

    job_data: JobData
    home: Path
    logs: JobLogs
    listener: Listener
    stop: StopRequest
    announce: Callable[[str], None]

    def in_folder(self, fresh: bool) -> RunReport:
        """Goes on in the interrupted run's folder, or takes a new one."""
        folders = RunFolders(self.home)
        job, fingerprint = job_hash(self.job_data.job), self.job_data.fingerprint
        folder = None if fresh and submitted_id() is None else folders.unfinished(job, fingerprint)
        if fresh and not (folder and folder.path.name == submitted_id()):
            folder = None  # of a job that is resumed, --fresh began the run that it goes on with
        folder = folder or folders.new(submitted_id())
        with folder.owned() as mine:
            if mine:
                return self._guarded(folder)
        # Another process took it up a moment ago.
        folder = folders.new()
        with folder.owned():
            return self._guarded(folder)

    def _guarded(self, folder: RunFolder) -> RunReport:
        """Runs, and leaves neither the folder nor the log in RUNNING whatever happens."""
        name, resumed = folder.path.name, (folder.path / CHECKPOINT).exists()
        with self.stop.shielded():
            log = self._open(folder)
        self.announce(f"{'going on with' if resumed else 'run'} {name}")
        state, metrics, reason = State.FAILED, dict[str, float](), ""
        try:
            metrics = self._execute(folder.path, log)
            with self.stop.shielded():
                log.artifacts(result_files(folder.path))
            state = State.COMPLETE
        except (Stopped, KeyboardInterrupt):
            state = State.STOPPED
        except Diverged as error:
            reason = str(error)
        except UnreadableCheckpointError as error:
            state, reason = State.STOPPED, str(error)
            raise MachineError(f"{reason}; the same command tries again") from None
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            with self.stop.shielded():
                # The database last: what a kill leaves RUNNING there is gone on with, and written again.
                log.set_state(state, reason)
                folder.set_state(state)
                drop_checkpoint(folder.path, state)
        return RunReport(name, state, folder.path, log.id, metrics, resumed, reason)

    def _open(self, folder: RunFolder) -> RunLog:
        """The folder's log, gone on with or new, and before it the record that ties them together."""
        name, job = folder.path.name, self.job_data.job
        record = folder.open(
            experiment=job.experiment,
            job_hash=job_hash(job),
            fingerprint=self.job_data.fingerprint,
            log=self.logs.usable(name),
            uri=self.logs.stored_uri,
        )
        data = self.job_data.dataset.info
        log = self.logs.start(
            job, data, id=record.log, name=job.baseline or name, owner=name, tags={Tag.ID: name}
        )
        log.set_state(State.RUNNING)
        self.logs.deliver(log.id)
        return log

    def _execute(self, folder: Path, log: RunLog) -> dict[str, float]:
        job_data, job = self.job_data, self.job_data.job
        if job.train.workers > 1:
            from mlcl.service.ray.ddp_group import run_group  # Ray is loaded only where it is needed

            return run_group(job, folder, log, self.home, self.listener, self.stop, announce=self.announce)
        outcome = run_experiment(
            job_data,
            folder=folder,
            context=Context.current(job.train.device),
            listener=tell_all(mlflow_listener(log, system=job.tracking.system_metrics), self.listener),
            should_stop=self.stop,
        )
        assert outcome is not None
        return outcome.metrics
