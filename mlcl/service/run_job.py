"""Runs one job as a single run, in this process or in a worker group of Ray."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.errors import MachineError
from mlcl.files import DISK_IS_FULL
from mlcl.service.engine.closing import backed_up, recover
from mlcl.service.engine.encoding import Work, encode_for_run
from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.precision import decide_precision
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.process.signals import StopRequest, stop_on_signal
from mlcl.service.ray.address import placed_by_ray
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State, mlflow_listener, provenance
from mlcl.tracking.delivery import Delivery
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.provenance import submitted_id, submitted_tags
from mlcl.tracking.tracker import Tracker
from mlcl.training.checkpoint import CHECKPOINT, UnreadableCheckpointError
from mlcl.training.context import Context, pick_device
from mlcl.training.events import Diverged, Event, Listener, Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.precision import Precision
from mlcl.training.run_files import result_files
from mlcl.training.step_precision import AUTO, in_precision


@dataclass(frozen=True)
class RunReport:
    """The result of a run; `resumed` says whether it began from a checkpoint.

    `undelivered` is the number of logs, also of earlier runs, that are not in MLflow yet; `mlflow_run_id` is
    None if this run is not in MLflow yet. `job_hash` is that of the trained job, in which a precision
    replaces `auto`.
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
    job_hash: str = ""


def run_job(
    job: JobConfig,
    *,
    home: Path,
    listener: Listener,
    fresh: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    stop: StopRequest | None = None,
    cpus: float = 1,
    gpus: float | None = None,
) -> RunReport:
    """Runs `job`, or resumes its interrupted run; `fresh` resumes only a run of this submitted cluster job.

    Ray places a job of several workers and, if RAY_ADDRESS names a cluster, any job but that of a baseline.
    Each worker then has `cpus` and `gpus`; by default a GPU if there is one for each. With `stop`, the caller
    handles signals. Raises UserError for wrong input before anything is started, and MachineError if a
    checkpoint cannot be read. MLflow must answer at the beginning; after that, only the end of the run waits
    a moment for it.
    """
    job_data = _resolve_precision(JobData.of(job, home), home, gpus, fresh=fresh)
    job = job_data.job
    for note in job_data.dataset.info.notes:
        announce(f"data: {note}")
    if not placed_by_ray(job):
        pick_device(job.train.device, gpu_booked=bool(gpus))
    tracker = Tracker(home)
    tracker.open_experiment(job.experiment)
    recover(home)
    signals = stop_on_signal(announce) if stop is None else nullcontext(stop)
    with signals as request, backed_up(home, announce), Delivery(tracker, announce) as delivery:
        delivery.add_undelivered()
        store = SharedRuns(JobLogs(home, tracker.uri, provenance(), delivery.add))
        try:
            with request.shielded():
                id = store.claim(job, job_data.dataset.info, fresh=fresh, id=submitted_id())
                entry = Entry(id, job.baseline or id, dump_job(job), {})
                store.open(entry)
            share = cpus, gpus
            report = _Run(job_data, home, store, entry, listener, request, announce, share).train()
        finally:
            store.release()
            with request.shielded():
                n_undelivered = delivery.drain(stop=request)
        return replace(report, mlflow_run_id=delivery.run_id(report.log), undelivered=n_undelivered)


def _resolve_precision(job_data: JobData, home: Path, gpus: float | None, *, fresh: bool) -> JobData:
    """Replaces `train.precision: auto` by the precision of the run to resume, else by a measured one."""
    job, runs = job_data.job, RunFolders(home)
    if job.train.precision != AUTO:
        return job_data

    def was_begun(precision: Precision) -> bool:
        run = runs.find_unfinished(job_hash(in_precision(job, precision)), job_data.fingerprint)
        return run is not None and (not fresh or run.path.name == submitted_id())

    return replace(job_data, job=in_precision(job, decide_precision(job_data, gpus, was_begun)))


@dataclass
class _Run:
    job_data: JobData
    home: Path
    store: SharedRuns
    entry: Entry
    listener: Listener
    stop: StopRequest
    announce: Callable[[str], None]
    share: tuple[float, float | None]

    def train(self) -> RunReport:
        """Trains and evaluates the job, and writes the state of the run at its end, also after an error."""
        id, folder = self.entry.key, self.store.folder(self.entry)
        log, resumed = RunLog.attach(self.home, self.store.log(self.entry)), (folder / CHECKPOINT).exists()
        state, metrics, reason = State.FAILED, dict[str, float](), ""
        try:
            self.announce(f"{'going on with' if resumed else 'run'} {id}")
            log.set_state(State.RUNNING)
            if tags := submitted_tags():
                log.log_tags(tags)
            metrics = self._execute(folder, log)
            with self.stop.shielded():
                log.log_artifacts(result_files(folder))
            state = State.COMPLETE
        except (Stopped, KeyboardInterrupt):
            state = State.STOPPED
        except Diverged as error:
            reason = str(error)
        except UnreadableCheckpointError as error:
            state, reason = State.STOPPED, str(error)
            raise MachineError(f"{reason}; the same command tries again") from None
        except OSError as error:
            # With room on the disk, the same command goes on from the last checkpoint.
            state = State.STOPPED if error.errno in DISK_IS_FULL else State.FAILED
            reason = f"{type(error).__name__}: {error}"
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            with self.stop.shielded():
                self.store.close(self.entry, End(state, reason))
        hash_ = job_hash(self.job_data.job)
        return RunReport(id, state, folder, log.id, metrics, resumed, reason, job_hash=hash_)

    def _encode_inputs(self) -> None:
        """Encodes the frozen inputs with all CPUs, before a training in this process."""
        job = self.job_data.job

        def show(done: int, total: int, _seconds_left: float | None, text: str) -> None:
            self.listener(Event("encoding", 0, 0, done, total, note=text))

        work = Work([job], self.home, pick_device(job.train.device).type)
        encode_for_run(work, show, self.stop)

    def _execute(self, folder: Path, log: RunLog) -> dict[str, float]:
        job_data, job = self.job_data, self.job_data.job
        if placed_by_ray(job):
            from mlcl.service.ray.ddp_group import Share, run_group  # Ray is loaded only where it is needed

            share, announce = Share(*self.share), self.announce
            return run_group(
                job, folder, log, self.home, self.listener, self.stop, share=share, announce=announce
            )
        self._encode_inputs()
        outcome = run_experiment(
            job_data,
            folder=folder,
            context=Context.current(job.train.device),
            listener=mlflow_listener(log, self.listener, system=job.tracking.system_metrics),
            should_stop=self.stop,
        )
        assert outcome is not None
        return outcome.metrics
