"""A sweep: search a space, confirm on fresh seeds beside baselines, say what came out."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import ray
import yaml
from mlflow.exceptions import MlflowException

from mlcl.config import JobConfig, Space, corners, dump_job, flatten, job_hash, load_job
from mlcl.errors import UserError
from mlcl.service.book import Book, Trial
from mlcl.service.draw import draw, point_of
from mlcl.service.folders import RunFolder, RunFolders, RunRecord
from mlcl.service.interrupt import StopRequest, stop_on_signal
from mlcl.service.orphans import close_orphans
from mlcl.service.searcher import OptunaSearcher, open_study
from mlcl.service.session import ray_session
from mlcl.service.tuning import build_scheduler, run_trials
from mlcl.tracking import Provenance, RunLog, State, Tracker, provenance
from mlcl.training.checks import check_job
from mlcl.training.context import pick_device
from mlcl.training.files import MODEL
from mlcl.training.material import Material


@dataclass(frozen=True)
class Candidate:
    """A setting that is confirmed on fresh seeds."""

    label: str
    job: JobConfig
    settings: dict[str, Any]


@dataclass
class Confirmation:
    """A candidate with its runs, one a seed."""

    candidate: Candidate
    log: RunLog
    seeds: list[Trial] = field(default_factory=list)

    def values(self, metric: str) -> list[float]:
        """The metric of every seed that has it."""
        return [trial.metrics[metric] for trial in self.seeds if metric in trial.metrics]

    def mean(self, metric: str) -> float | None:
        """Over seeds."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None


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


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep was asked to do."""

    job: JobConfig
    space: Space
    trials: int
    seeds: int
    baselines: Sequence[tuple[str, JobConfig]]
    cpus: float = 1
    gpus: float | None = None

    @property
    def score(self) -> str:
        """The metric of a finished trial: the best over the free keys, where the space names some."""
        metric = self.space.metric
        return f"knn_best/val/{metric.rpartition('/')[2]}" if self.space.posthoc else metric

    def search_job(self) -> JobConfig:
        """The job that all trials start from: selecting metric and post-hoc grid of the space."""
        return self.with_grid(self.job)

    def with_grid(self, job: JobConfig) -> JobConfig:
        """A job with the space's metric, its post-hoc grid, and one thread for each CPU of a trial."""
        settings: dict[str, Any] = {"evaluation.metric": self.space.metric, **self.space.posthoc}
        if job.train.threads is None:
            settings["train.threads"] = max(1, int(self.cpus))
        return load_job(dump_job(job), settings)


def check_plan(plan: SweepPlan, home: Path) -> Material:
    """Everything that can be wrong, before Ray or MLflow are touched. Raises UserError."""
    if plan.job.train.workers > 1:
        raise UserError(
            "trials of a sweep run in one process each",
            key="train.workers",
            found=plan.job.train.workers,
            allowed=1,
        )
    if not os.environ.get("RAY_ADDRESS"):
        device = "cuda" if plan.gpus else plan.job.train.device
        pick_device(device)
    search_job = plan.search_job()
    material = Material.of(search_job, home)
    for corner in corners(plan.space):
        check_job(load_job(dump_job(search_job), corner), material.dataset.info)
    for _, job in plan.baselines:
        Material.of(plan.with_grid(job), home)
    return material


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
        session = _Session(plan, book, folder.path, log.run_id, *packing, stop, announce)
        report.best = session.search()
        report.trials = list(book.trials.values())
        if not stop():
            report.confirmations = session.confirm(report.best)
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
    log.text(repr(plan.space), "space.txt")
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


@dataclass
class _Session:
    plan: SweepPlan
    book: Book
    folder: Path
    parent: str
    concurrent: int
    gpus: float
    stop: StopRequest
    announce: Callable[[str], None]

    def search(self) -> Trial | None:
        """All search trials; the best complete one."""
        plan, base = self.plan, self.plan.search_job()
        study = open_study(
            self.folder / "study.journal", self.folder.name, plan.space.search, plan.space.mode
        )
        start = point_of(plan.space, flatten(dump_job(base)))
        if start is not None:
            study.enqueue_trial(start)

        def begin(_trial_id: str, trial: optuna.Trial) -> dict[str, Any]:
            settings = draw(plan.space, trial)
            trial.set_user_attr("settings", settings)
            _, config = self.book.open(
                f"trial {trial.number}",
                load_job(dump_job(base), settings),
                parent=self.parent,
                settings=settings,
                tags={"mlcl.kind": "trial", "mlcl.trial": str(trial.number)},
                test=False,
            )
            return config

        searcher = OptunaSearcher(study, plan.space.mode, begin)
        try:
            self._run(plan.trials, searcher=searcher, scheduler=build_scheduler(plan.space, base))
        finally:
            searcher.close()
        return best_of(list(self.book.trials.values()), plan.space.mode)

    def confirm(self, best: Trial | None) -> list[Confirmation]:
        """Baselines, the job as written and the best found, each on the same fresh seeds."""
        plan = self.plan
        if plan.seeds == 0 or best is None:
            return []
        candidates = [Candidate(name, plan.with_grid(job), {}) for name, job in plan.baselines]
        candidates.append(Candidate("as written", plan.search_job(), {}))
        candidates.append(Candidate(f"best found ({best.label})", best.job, dict(best.settings)))
        opened = [self._open(candidate) for candidate in candidates]
        configs = [config for _, group in opened for config in group]
        self._run(len(configs), configs=configs)
        for confirmation, _ in opened:
            self._finish(confirmation)
        return [confirmation for confirmation, _ in opened]

    def _open(self, candidate: Candidate) -> tuple[Confirmation, list[dict[str, Any]]]:
        """The candidate's nested run, and under it one for every seed, none of them the search's."""
        group = Confirmation(candidate, self.book.group(candidate.label, candidate.job, self.parent))
        configs = []
        first = self.plan.job.train.seed + 1
        for seed in range(first, first + self.plan.seeds):
            trial, config = self.book.open(
                f"{candidate.label}, seed {seed}",
                load_job(dump_job(candidate.job), {"train.seed": seed}),
                parent=group.log.run_id,
                settings=candidate.settings,
                tags={"mlcl.kind": "confirmation"},
                test=True,
            )
            configs.append(config)
            group.seeds.append(trial)
        return group, configs

    def _finish(self, group: Confirmation) -> None:
        names = sorted({name for trial in group.seeds for name in trial.metrics})
        group.log.metrics({name: statistics.fmean(group.values(name)) for name in names}, step=0)
        if self.stop():
            self.book.close_group(group.log, State.STOPPED)
        elif all(trial.state is State.COMPLETE for trial in group.seeds):
            self.book.close_group(group.log, State.COMPLETE)
        else:
            self.book.close_group(group.log, State.FAILED, "not every seed is complete")

    def _run(self, count: int, **how: Any) -> None:
        done, began = 0, time.monotonic()

        def closed(trial: Trial) -> None:
            nonlocal done
            done += 1
            left = (time.monotonic() - began) / done * (count - done)
            # A trial that was stopped early has a rung's score, which knows no neighbours.
            metric = self.plan.score if trial.state is State.COMPLETE else self.plan.space.metric
            score = "" if trial.score is None else f" {metric} {trial.score:.4f}"
            why = f" ({trial.reason})" if trial.reason else ""
            time_left = f"  about {int(left // 60)}m{int(left % 60):02d}s left" if done < count else ""
            self.announce(f"[{done}/{count}] {trial.label} {trial.state}{score}{why}{time_left}")

        run_trials(
            self.book,
            folder=self.folder,
            mode=self.plan.space.mode,
            count=count,
            cpus=self.plan.cpus,
            gpus=self.gpus,
            concurrent=self.concurrent,
            asked=self.stop,
            closed=closed,
            **how,
        )


def best_of(trials: Sequence[Trial], mode: str) -> Trial | None:
    """The complete trial with the best finite score; the earliest of equals."""
    complete = [
        t for t in trials if t.state is State.COMPLETE and t.score is not None and math.isfinite(t.score)
    ]
    if not complete:
        return None
    return (max if mode == "max" else min)(complete, key=lambda t: t.score or 0.0)


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
