"""One job as one run: in this process for one worker, in a Ray worker group for several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.interrupt import StopRequest, stop_on_signal
from mlcl.service.orphans import close_orphans
from mlcl.tracking import Provenance, RunLog, State, Tracker, mlflow_listener, params_of, provenance
from mlcl.training.context import Context, pick_device
from mlcl.training.events import Diverged, Listener, Stopped, tell_all
from mlcl.training.experiment import CHECKPOINT, run_experiment
from mlcl.training.files import EMBEDDINGS, MODEL, RESULT
from mlcl.training.material import Material


@dataclass(frozen=True)
class RunReport:
    """What became of a run."""

    id: str
    state: State
    folder: Path
    mlflow_run_id: str
    metrics: dict[str, float]
    resumed: bool
    reason: str = ""


def run_job(
    job: JobConfig,
    *,
    home: Path,
    listener: Listener,
    fresh: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Runs `job`, or goes on with its interrupted run; `fresh` starts anew in any case.

    Raises UserError before any resource is taken. A NaN, an exception or a stop ends in a true state.
    """
    material = Material.of(job, home)
    if job.train.workers == 1:
        pick_device(job.train.device)
    tracker = Tracker(home)
    folders = RunFolders(home)
    close_orphans(tracker, home)
    with stop_on_signal(announce) as stop:
        folder = None if fresh else folders.unfinished(job_hash(job), material.fingerprint)
        folder = folder or folders.new()
        with folder.owned() as mine:
            if mine:
                return _guarded(material, folder, tracker, home, listener, stop, announce)
        # Another process took it up a moment ago.
        folder = folders.new()
        with folder.owned():
            return _guarded(material, folder, tracker, home, listener, stop, announce)


def _open(tracker: Tracker, folder: RunFolder, material: Material) -> RunLog:
    """The folder's run in MLflow, re-attached or new, and the record that ties them together."""
    record = folder.record
    log = None
    if record is not None and record.tracking_uri == tracker.uri:
        log = tracker.attach(record.mlflow_run_id)
    if log is None:
        name = folder.path.name
        log = start_run(tracker, material.job, material, name=name, owner=name, source=provenance())
    folder.write(
        RunRecord(
            id=folder.path.name,
            experiment=material.job.experiment,
            job_hash=job_hash(material.job),
            fingerprint=material.fingerprint,
            state=State.RUNNING,
            mlflow_run_id=log.run_id,
            tracking_uri=tracker.uri,
            created=record.created if record else folder.path.name.split("-", 1)[1],
        )
    )
    return log


def start_run(
    tracker: Tracker,
    job: JobConfig,
    material: Material,
    *,
    name: str,
    owner: str,
    source: Provenance,
    parent: str | None = None,
    tags: dict[str, str] | None = None,
) -> RunLog:
    """A new MLflow run of a job: parameters, provenance, fingerprints, the resolved job."""
    info = material.dataset.info
    log = tracker.start(
        job.experiment,
        name,
        owner=owner,
        params=params_of(job),
        tags={
            "mlcl.id": name,
            "mlcl.job_hash": job_hash(job),
            "mlcl.data": info.name,
            "mlcl.data_fingerprint": material.fingerprint,
            "mlcl.seed": str(job.train.seed),
            **(tags or {}),
        },
        source=source,
        parent=parent,
    )
    log.text(yaml.safe_dump(dump_job(job), sort_keys=False), "job.yaml")
    return log


def _guarded(
    material: Material,
    folder: RunFolder,
    tracker: Tracker,
    home: Path,
    listener: Listener,
    stop: StopRequest,
    announce: Callable[[str], None],
) -> RunReport:
    """Runs, and leaves neither the folder nor MLflow in RUNNING whatever happens."""
    resumed = (folder.path / CHECKPOINT).exists()
    with stop.shielded():
        log = _open(tracker, folder, material)
    announce(f"{'going on with' if resumed else 'run'} {folder.path.name}")
    state, metrics, reason = State.FAILED, dict[str, float](), ""
    try:
        metrics = _execute(material, folder.path, log, home, listener, stop)
        with stop.shielded():
            log.artifacts([folder.path / name for name in (RESULT, EMBEDDINGS, MODEL)])
        state = State.COMPLETE
    except (Stopped, KeyboardInterrupt):
        state = State.STOPPED
    except Diverged as error:
        reason = str(error)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        with stop.shielded():
            folder.set_state(state)
            log.finish(state, reason)
    return RunReport(folder.path.name, state, folder.path, log.run_id, metrics, resumed, reason)


def _execute(
    material: Material, folder: Path, log: RunLog, home: Path, listener: Listener, stop: StopRequest
) -> dict[str, float]:
    if material.job.train.workers > 1:
        from mlcl.service.group import run_group  # Ray is loaded only where it is needed

        return run_group(material.job, folder, log, home, listener, stop)
    outcome = run_experiment(
        material,
        folder=folder,
        context=Context.current(material.job.train.device),
        listener=tell_all(mlflow_listener(log), listener),
        should_stop=stop,
    )
    assert outcome is not None
    return outcome.metrics
