"""What a sweep was asked to do, and whether it can be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import POSTHOC, JobConfig, Space, corners, covers, default_mode, dump_job, flatten, load_job
from mlcl.config.space.search import SAMPLERS
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.service.engine.packing import Resources
from mlcl.service.search.sampling import grid_size
from mlcl.tracking import log_parameters, params_of
from mlcl.tracking.names import MIX
from mlcl.training.baselines.jobs import baseline_job, fitting_baselines
from mlcl.training.checks import check_job
from mlcl.training.job_data import JobData, open_dataset


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep was asked to do.

    `trials` counts the search trials of the space; `confirm` of the best settings are trained on `seeds`
    fresh seeds. `warm_start` names an earlier sweep.
    """

    job: JobConfig
    space: Space
    space_text: str
    name: str
    trials: int
    seeds: int = 0
    confirm: int = 1
    baselines: Sequence[tuple[str, JobConfig]] = ()
    resources: Resources = field(default_factory=Resources)
    warm_start: str | None = None
    fresh: bool = False

    @property
    def scores(self) -> tuple[str, ...]:
        """The figures of a finished trial, one a goal: the best over the free keys, where there are any."""
        return tuple(self._figure(goal.metric) for goal in self.space.goals)

    @property
    def score(self) -> str:
        """The pruning goal's."""
        return self._figure(self.space.metric)

    def _figure(self, metric: str) -> str:
        return f"knn_best/val/{metric.rpartition('/')[2]}" if self.space.posthoc else metric

    @property
    def free(self) -> tuple[str, ...]:
        """The keys that are answered after training: all three where the space names one."""
        return tuple(POSTHOC) if self.space.posthoc else ()

    @property
    def most(self) -> int:
        """Search trials there can be: a grid ends when all of it has been tried; post-hoc keys need one."""
        ends = SAMPLERS[self.space.search.sampler].exhaustive or not self.space.parameters
        size = grid_size(self.space) if ends else None
        return self.trials if size is None else min(self.trials, size)

    @property
    def searched(self) -> tuple[str, ...]:
        """The keys that the space draws."""
        return tuple(key for parameter in self.space.parameters for key in parameter.keys)

    def shared_params(self) -> dict[str, str]:
        """The parameters that all search trials have in common: the job's, but for what is searched."""
        job, used = params_of(self.job, self.free), params_of(self.search_job(), self.free)
        drawn = {
            key: value for key, value in flatten(dump_job(self.search_job())).items() if self._draws(key)
        }
        vary = {*log_parameters(drawn), *MIX}
        return {key: text for key, text in used.items() if job.get(key) == text and key not in vary}

    def _draws(self, key: str) -> bool:
        return any(covers(drawn, key) for drawn in self.searched)

    def search_job(self) -> JobConfig:
        """The job that all trials start from: selecting metric and post-hoc grid of the space."""
        return self.with_grid(self.job)

    def with_grid(self, job: JobConfig) -> JobConfig:
        """A job with the space's metric, its post-hoc grid, and one thread for each CPU of a trial.

        A fitted baseline has no neighbours, and so neither their metric nor their grid.
        """
        settings: dict[str, Any] = {"experiment": self.job.experiment}  # that of the parent's run
        if job.baseline is None:
            settings |= {"evaluation.metric": self.space.metric, **self.space.posthoc}
        else:
            settings["evaluation.metric"] = f"val/{self.space.metric.rpartition('/')[2]}"
        if job.train.threads is None:
            settings["train.threads"] = max(1, int(self.resources.cpus))
        return load_job(dump_job(job), settings)


def fitted_baselines(job: JobConfig, home: Path) -> list[tuple[str, JobConfig]]:
    """The baselines that can be fitted to a job's data, with their jobs."""
    names, _ = fitting_baselines(job, open_dataset(job, home, verify=False).info)
    return [(name, baseline_job(job, name)) for name in names]


def check_plan(plan: SweepPlan, home: Path) -> JobData:
    """Everything that can be wrong, before Ray or MLflow are touched. Raises UserError."""
    plan.resources.check(plan.job)
    search_job = plan.search_job()
    job_data = JobData.of(search_job, home)
    info = job_data.dataset.info
    _check_goals(plan)
    for goal in plan.space.goals:
        check_job(load_job(dump_job(search_job), {"evaluation.metric": goal.metric}), info)
    check_corners(plan, info)
    for name, job in plan.baselines:
        verify = job.baseline is None  # a fitted one has the swept job's own data
        _check_baseline(name, JobData.of(plan.with_grid(job), home, verify=verify), job_data)
    return job_data


def check_corners(plan: SweepPlan, info: DatasetInfo) -> None:
    """Raises UserError where settings that the space holds do not fit the data."""
    job = dump_job(plan.search_job())
    for corner in corners(plan.space):
        check_job(load_job(job, corner), info)


def _check_goals(plan: SweepPlan) -> None:
    """With free keys a trial's figures are those of the best k, lambda and temperature: in one direction."""
    if not plan.space.posthoc:
        return
    for goal in plan.space.goals:
        if goal.mode != default_mode(goal.metric):
            raise UserError(
                "the search over free keys takes the other direction",
                file=plan.space.file,
                key="search.mode",
                found=f"{goal.metric}: {goal.mode}",
                allowed=default_mode(goal.metric),
            )
    if len(set(plan.scores)) < len(plan.scores):
        raise UserError(
            "two metrics come to the same figure where keys are free",
            file=plan.space.file,
            key="search.metric",
            found=[goal.metric for goal in plan.space.goals],
        )


def _check_baseline(name: str, baseline: JobData, swept: JobData) -> None:
    """A baseline is comparable: the same data and the same targets."""
    pairs = {
        "data": (baseline.fingerprint, swept.fingerprint),
        "objective.classifier.labels": tuple(
            job_data.job.objective.classifier.labels for job_data in (baseline, swept)
        ),
        "train.workers": (baseline.job.train.workers, swept.job.train.workers),
    }
    for key, (found, allowed) in pairs.items():
        if found != allowed:
            raise UserError(
                "a baseline needs the swept job's", file=name, key=key, found=found, allowed=allowed
            )
