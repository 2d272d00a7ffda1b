"""A sweep: search a space, confirm on fresh seeds beside baselines, say what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ray
import yaml
from mlflow.exceptions import MlflowException

from mlcl.config import dump_job, job_hash
from mlcl.errors import UserError
from mlcl.service.book import Book, Trial
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.interrupt import StopRequest, stop_on_signal
from mlcl.service.orphans import close_orphans
from mlcl.service.session import ray_session
from mlcl.service.stages import Confirmation, Stages
from mlcl.service.sweep_plan import SweepPlan, check_plan
from mlcl.tracking import Provenance, RunLog, State, Tracker, provenance
from mlcl.training.files import MODEL
from mlcl.training.material import Material


@dataclass
class SweepReport:
    """What became of a sweep."""

    id: str
    state: State
    folder: Path
    mlflow_run_id: str
    score: str
    mode: str
    trials: list[Trial]
    best: Trial | None
    confirmations: list[Confirmation]
    registered: str = ""


def run_sweep(plan: SweepPlan, *, home: Path, announce: Callable[[str], None]) -> SweepReport:
    """Searches, confirms, registers the best. Raises UserError before anything has been started."""
    material = check_plan(plan, home)
    tracker = Tracker(home)
    close_orphans(tracker, home)
    folder = RunFolders(home, "sweeps").new()
    with stop_on_signal(announce) as stop, ray_session(), folder.owned():
        packing = _packing(plan)
        return _run(plan, material, tracker, folder, packing, stop, announce, home)


def _run(
    plan: SweepPlan,
    material: Material,
    tracker: Tracker,
    folder: RunFolder,
    packing: tuple[int, float],
    stop: StopRequest,
    announce: Callable[[str], None],
    home: Path,
) -> SweepReport:
    """The sweep proper: whatever happens in it, nothing is left RUNNING."""
    with stop.shielded():
        source = provenance()
        log = _open_parent(plan, tracker, source, material, folder)
    book = Book(tracker, material, source, folder.path, home, plan.score)
    report = SweepReport(
        folder.path.name, State.FAILED, folder.path, log.run_id, plan.score, plan.space.mode, [], None, []
    )
    announce(f"sweep {report.id}: {plan.trials} trials, score {plan.score} ({plan.space.mode})")
    reason = "no trial is complete"
    try:
        stages = Stages(plan, book, folder.path, log.run_id, *packing, stop, announce)
        try:
            report.best = stages.search()
        finally:
            report.trials = list(book.trials.values())
        if not stop():
            report.confirmations = stages.confirm(report.best)
        report.state = _state(report, stop)
    except KeyboardInterrupt:
        report.state = State.STOPPED
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        with stop.shielded():
            ended = State.STOPPED if report.state is State.STOPPED else State.FAILED
            book.close_open(ended, "the sweep ended before it")
            if report.state is State.COMPLETE:
                report.registered = _register(plan, tracker, report)
            folder.set_state(report.state)
            _conclude(report, log, reason if report.state is State.FAILED else "")
    return report


def _state(report: SweepReport, stop: StopRequest) -> State:
    if stop():
        return State.STOPPED
    return State.COMPLETE if report.best is not None else State.FAILED


def _open_parent(
    plan: SweepPlan, tracker: Tracker, source: Provenance, material: Material, folder: RunFolder
) -> RunLog:
    """The sweep's own run in MLflow, and the record by which a later command knows it."""
    name = folder.path.name
    log = tracker.start(
        plan.job.experiment,
        name,
        owner=name,
        params={"sweep.trials": str(plan.trials), "sweep.seeds": str(plan.seeds), "sweep.score": plan.score},
        tags={
            "mlcl.id": name,
            "mlcl.kind": "sweep",
            "mlcl.job_hash": job_hash(plan.job),
            "mlcl.data_fingerprint": material.fingerprint,
        },
        source=source,
    )
    log.text(yaml.safe_dump(dump_job(plan.job), sort_keys=False), "job.yaml")
    log.text(plan.space_text, "space.yaml")
    folder.write(
        RunRecord(
            id=name,
            experiment=plan.job.experiment,
            job_hash=job_hash(plan.job),
            fingerprint=material.fingerprint,
            state=State.RUNNING,
            mlflow_run_id=log.run_id,
            tracking_uri=tracker.uri,
            created=name.split("-", 1)[1],
        )
    )
    return log


def _packing(plan: SweepPlan) -> tuple[int, float]:
    """How many trials run at once, and the GPU share of each."""
    total = ray.cluster_resources()
    gpus = plan.gpus if plan.gpus is not None else float(total.get("GPU", 0) > 0)
    room = int(total.get("CPU", 0) // plan.cpus)
    if gpus > 0:
        room = min(room, int(total.get("GPU", 0) / gpus))
    if room < 1:
        raise UserError(
            "no trial fits into the cluster",
            key="--cpus/--gpus",
            found=f"{plan.cpus:g} CPUs, {gpus:g} GPUs a trial",
            allowed=f"at most {total.get('CPU', 0):g} CPUs, {total.get('GPU', 0):g} GPUs",
        )
    return room, gpus


def _register(plan: SweepPlan, tracker: Tracker, report: SweepReport) -> str:
    """Registers the best trial's model. A store that refuses it does not undo the sweep."""
    assert report.best is not None
    assert report.best.score is not None
    try:
        return tracker.register(
            plan.job.experiment, report.best.run_id, MODEL, plan.score, report.best.score, plan.space.mode
        )
    except MlflowException as error:
        return f"not registered: {error}"


def _conclude(report: SweepReport, log: RunLog, reason: str) -> None:
    """The parent's figures: the chart of nested runs is empty without them."""
    metrics: dict[str, float] = {}
    for state in State:
        metrics[f"sweep/{state.lower()}"] = sum(trial.state is state for trial in report.trials)
    if report.best is not None:
        metrics |= {**report.best.metrics, "score": report.best.score or 0.0}
    log.metrics(metrics, step=0)
    if report.best is not None:
        log.tags({"mlcl.best_run_id": report.best.run_id})
        log.text(json.dumps(dict(report.best.settings), indent=2), "best_settings.json")
    log.finish(report.state, reason)
