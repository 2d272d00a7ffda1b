"""The plan of a sweep, and the sweep that it goes on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlcl.config import (
    POSTHOC,
    JobConfig,
    Space,
    covers,
    dump_job,
    flatten,
    job_hash,
    load_job,
)
from mlcl.config.space.search import SAMPLERS
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Resources
from mlcl.service.search.sampling import grid_size
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import log_parameters, params_of, tracking_uri
from mlcl.tracking.names import MIX
from mlcl.tracking.provenance import submitted_id
from mlcl.tracking.uri import stored_uri
from mlcl.training.baselines.jobs import baseline_job, fitting_baselines
from mlcl.training.job_data import JobData, open_dataset

IDENTITY = {
    "job_hash": "job",
    "fingerprint": "data set",
    "scores": "score: its space has other goals, or other free keys",
    "modes": "mode",
    "prune_by": "metric to prune by",
    "free": "set of free keys",
    "scheduler": "scheduler",
    "uri": "tracking store",
}
"""What all commands of a sweep must agree in, and what messages call it."""


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep, by the arguments of its command.

    Attributes:
        job: The swept job.
        space: What is searched.
        space_text: The text of the space file.
        name: The sweep's name.
        trials: The number of search trials of each arm, which its searches divide.
        seeds: The number of fresh seeds of each arm, which the picks of its searches divide.
        confirm: The number of best settings that race; without a race, that are confirmed.
        searches: The number of independent searches of each arm.
        control: The job without heads that has an arm of its own.
        baselines: Names and jobs of the baselines.
        resources: What a trial gets, and the budget.
        redraws: Whether each search but the first of an arm has validation rows of its own.
        knn_races: Whether trials are scored without a choice of post-hoc keys, which the races make; see
            `with_scores`.
        warm_start: The name or id of a sweep whose trials are taken over.
        fresh: Whether to begin a new sweep where one of this name exists.
    """

    job: JobConfig
    space: Space
    space_text: str
    name: str
    trials: int
    seeds: int = 0
    confirm: int = 1
    searches: int = 1
    control: JobConfig | None = None
    baselines: Sequence[tuple[str, JobConfig]] = ()
    resources: Resources = field(default_factory=Resources)
    redraws: bool = False
    knn_races: bool = False
    warm_start: str | None = None
    fresh: bool = False

    @property
    def scores(self) -> tuple[str, ...]:
        """The metric of each goal; where each trial chooses k, lambda and temperature, that of the best."""
        return tuple(self._scored(goal.metric) for goal in self.space.goals)

    @property
    def score(self) -> str:
        """The metric of the goal that trials are pruned by."""
        return self._scored(self.space.metric)

    def _scored(self, metric: str) -> str:
        return f"knn_best/val/{metric.rpartition('/')[2]}" if self.free else metric

    @property
    def fresh_score(self) -> str:
        """The metric that compares settings on fresh seeds: where a race chose neighbours, that with them."""
        return f"knn/val/{self.score.rpartition('/')[2]}" if self.knn_races else self.score

    @property
    def posthoc(self) -> tuple[str, ...]:
        """The post-hoc keys: all three where the space names one."""
        return tuple(POSTHOC) if self.space.posthoc else ()

    @property
    def free(self) -> tuple[str, ...]:
        """The post-hoc keys whose values each training chooses for itself."""
        return () if self.knn_races else self.posthoc

    @property
    def points(self) -> int | None:
        """The number of points in the space, after which the search ends; None where it does not end."""
        points = grid_size(self.space)
        return points if SAMPLERS[self.space.search.sampler].exhaustive or points == 1 else None

    @property
    def most(self) -> int:
        """The largest number of search trials."""
        return self.trials if self.points is None else min(self.trials, self.points)

    @property
    def searched(self) -> tuple[str, ...]:
        """The keys that the space draws."""
        return tuple(key for parameter in self.space.parameters for key in parameter.keys)

    def shared_params(self) -> dict[str, str]:
        """Returns the MLflow parameters that are not drawn: all search trials have those of the job."""
        job, used = params_of(self.job, self.free), params_of(self.search_job(), self.free)
        flat = flatten(dump_job(self.search_job()))
        drawn = {k: value for k, value in flat.items() if any(covers(each, k) for each in self.searched)}
        vary = {*log_parameters(drawn), *MIX}
        return {key: text for key, text in used.items() if job.get(key) == text and key not in vary}

    def search_job(self) -> JobConfig:
        """Returns the job that all trials start from."""
        return self.with_grid(self.job)

    def with_grid(self, job: JobConfig) -> JobConfig:
        """Returns a job with the space's metric, its post-hoc grid, and one thread for each CPU of a trial.

        A fitted baseline has no neighbours, and so neither their metric nor their grid.
        """
        settings: dict[str, Any] = {"experiment": self.job.experiment}  # the runs of a sweep are in one
        if job.baseline is None:
            settings |= {"evaluation.metric": self.space.metric, **self.space.posthoc}
        else:
            settings["evaluation.metric"] = f"val/{self.space.metric.rpartition('/')[2]}"
        if job.train.threads is None:
            settings["train.threads"] = max(1, int(self.resources.cpus))
        return load_job(dump_job(job), settings)


def fitted_baselines(job: JobConfig, home: Path) -> list[tuple[str, JobConfig]]:
    """Returns names and jobs of the baselines that can be fitted to a job's data."""
    names, _ = fitting_baselines(job, open_dataset(job, home, verify=False).info)
    return [(name, baseline_job(job, name)) for name in names]


def with_scores(plan: SweepPlan, home: Path) -> SweepPlan:
    """Returns the plan with `knn_races` set: where post-hoc keys are free and the best trials race.

    The sweep of the plan's name goes on as it began. Raises UserError where it needs a race and has none.
    """
    if plan.space.multi or not plan.posthoc:
        return plan
    racing, folder = replace(plan, knn_races=True), _known_folder(plan, home)
    head, race_seeds = {} if folder is None else Ledger(folder.path).head, plan.space.search.race_seeds
    new = plan.seeds > 0 and race_seeds > 0
    if not (head.get("scores") == list(racing.scores) if head else new):
        return plan
    if plan.seeds and not race_seeds:
        raise UserError(
            "the races of this sweep choose k, lambda and temperature",
            file=plan.space.file,
            key="search.race_seeds",
            found=race_seeds,
            allowed="1 or more, or --fresh to begin anew",
        )
    return racing


def _known_folder(plan: SweepPlan, home: Path) -> RunFolder | None:
    """The folder of the sweep that the command goes on with; None for a new one."""
    folders = RunFolders(home, "sweeps")
    # A job that is resumed goes on with its own sweep, which --fresh began.
    return folders.find(submitted_id()) or (None if plan.fresh else folders.named(plan.name))


def sweep_identity(plan: SweepPlan, job_data: JobData, home: Path) -> dict[str, object]:
    """Returns what all commands of a sweep must agree in: trials that differ in it do not compare."""
    search = plan.space.search
    return {
        "job_hash": job_hash(plan.job),
        "fingerprint": job_data.fingerprint,
        "scores": list(plan.scores),
        "modes": [goal.mode for goal in plan.space.goals],
        "prune_by": plan.space.metric,
        "free": list(plan.posthoc),
        "scheduler": [search.scheduler, search.grace, search.reduction_factor, search.startup],
        "uri": stored_uri(tracking_uri(home), home),
    }


def sweep_folder(plan: SweepPlan, home: Path, identity: Mapping[str, object]) -> RunFolder:
    """Returns the folder of the sweep of the plan's name, or a new one.

    Raises UserError where that sweep has another identity.
    """
    folder = _known_folder(plan, home)
    if folder is None:
        return RunFolders(home, "sweeps").new(submitted_id())
    head = Ledger(folder.path).head
    for key, value in identity.items():
        if head and head.get(key) != value:
            raise UserError(
                f"the sweep of this name has another {IDENTITY[key]}",
                key="--name",
                found=plan.name,
                allowed="another --name, or --fresh to begin anew",
            )
    return folder
