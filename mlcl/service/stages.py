"""The two stages of a sweep: the search, and the confirmation of what it found on fresh seeds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna

from mlcl.config import JobConfig, dump_job, flatten, load_job
from mlcl.service.book import Book, Trial
from mlcl.service.draw import draw, point_of
from mlcl.service.interrupt import StopRequest
from mlcl.service.searcher import OptunaSearcher, open_study
from mlcl.service.sweep_plan import SweepPlan
from mlcl.service.tuning import build_scheduler, run_trials
from mlcl.tracking import RunLog, State


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


@dataclass
class Stages:
    """Runs both stages of one sweep."""

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
