"""The plan of a sweep, and the lookup of the folder of the sweep that a command resumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlcl.config import POSTHOC, JobConfig, Space, covers, dump_job, flatten, job_hash, load_job
from mlcl.config.space.search import SAMPLERS
from mlcl.data.validation_rows import redraws_validation
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Resources
from mlcl.service.engine.precision import decide_precision
from mlcl.service.search.sampling import grid_size
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import log_parameters, params_of, tracking_uri
from mlcl.tracking.names import MIX
from mlcl.tracking.provenance import submitted_id
from mlcl.tracking.uri import stored_uri
from mlcl.training.baseline_fits import ENSEMBLE
from mlcl.training.job_data import JobData
from mlcl.training.precision import Precision
from mlcl.training.step_precision import in_precision

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
"""The keys of `sweep_identity`, whose values all commands of a sweep share, with their names in messages."""


@dataclass(frozen=True)
class SweepPlan:
    """The plan of a sweep, as given by the arguments of its command.

    Attributes:
        space_text: The text of the space file.
        trials: The number of search trials of each arm, divided among its searches and rounded up.
        seeds: The number of fresh seeds of each arm, divided among its searches.
        confirm: The number of best settings that enter the race; without a race, that are confirmed.
        searches: The number of independent searches of each arm.
        control: The job without heads, which is searched as an arm of its own; None without a control.
        spaces: The baselines' own spaces with the text of their files, by the baseline's name. A baseline
            without one is searched over the keys of `space` that its job has.
        redraws: Whether each search but the first of an arm draws validation rows of its own.
        knn_races: Whether races, and not single trials, choose the post-hoc values; see `with_scores`.
        warm_start: The name or id of another sweep, whose trials the searches with the same number reuse.
        try_first: Settings that each search tries after the job as written, as values by key of the space.
        fresh: Whether to begin a new sweep in any case.
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
    spaces: Mapping[str, tuple[Space, str]] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    redraws: bool = False
    knn_races: bool = False
    warm_start: str | None = None
    try_first: Sequence[Mapping[str, Any]] = ()
    fresh: bool = False

    @property
    def scores(self) -> tuple[str, ...]:
        """The metric of each goal: `knn_best/val/...` if each training chooses its k-NN parameters."""
        return tuple(self._scored_metric(goal.metric) for goal in self.space.goals)

    @property
    def score(self) -> str:
        """The name of the metric that the pruner compares, see `scores`."""
        return self._scored_metric(self.space.metric)

    def _scored_metric(self, metric: str) -> str:
        return f"knn_best/val/{metric.rpartition('/')[2]}" if self.free_keys else metric

    @property
    def fresh_score(self) -> str:
        """The metric on fresh seeds: of k-NN if races choose, else of the ensemble if any, else `score`."""
        name = self.score.rpartition("/")[2]
        if self.knn_races:
            return f"knn/val/{name}"
        averaged = self.job.evaluation.ensemble is not None and self.score.startswith("val/")
        return f"{ENSEMBLE}val/{name}" if averaged else self.score

    @property
    def posthoc_keys(self) -> tuple[str, ...]:
        """The post-hoc keys (k, lambda, temperature): all three if the space has one of them, else none."""
        return tuple(POSTHOC) if self.space.posthoc else ()

    @property
    def free_keys(self) -> tuple[str, ...]:
        """The post-hoc keys whose values each training chooses for itself."""
        return () if self.knn_races else self.posthoc_keys

    @property
    def points(self) -> int | None:
        """The number of points of the space if its sampler never repeats one, or if it is 1; else None."""
        points = grid_size(self.space)
        return points if SAMPLERS[self.space.search.sampler].exhaustive or points == 1 else None

    @property
    def most_trials(self) -> int:
        """The largest number of trials of the search: `trials`, or `points` if that is smaller."""
        return self.trials if self.points is None else min(self.trials, self.points)

    @property
    def searched_keys(self) -> tuple[str, ...]:
        """The job keys whose values are drawn from the space."""
        return tuple(key for parameter in self.space.parameters for key in parameter.keys)

    def shared_params(self) -> dict[str, str]:
        """Returns the MLflow parameters that no search trial varies, so that all have the same values."""
        job_params, trial_params = (
            params_of(self.job, self.free_keys),
            params_of(self.search_job(), self.free_keys),
        )
        flat_job = flatten(dump_job(self.search_job()))
        drawn_values = {
            k: value for k, value in flat_job.items() if any(covers(key, k) for key in self.searched_keys)
        }
        varied_keys = {*log_parameters(drawn_values), *MIX}
        return {
            key: text
            for key, text in trial_params.items()
            if job_params.get(key) == text and key not in varied_keys
        }

    def search_job(self) -> JobConfig:
        """Returns the swept job with the space's metric and post-hoc grid, from which trials are derived."""
        return self.with_grid(self.job)

    def with_grid(self, job: JobConfig) -> JobConfig:
        """Returns a job with the space's metric and, unless it is a fitted baseline, its post-hoc grid."""
        settings: dict[str, Any] = {"experiment": self.job.experiment}  # the same for all runs
        if job.baseline is None:
            settings |= {"evaluation.metric": self.space.metric, **self.space.posthoc}
        else:
            settings["evaluation.metric"] = f"val/{self.space.metric.rpartition('/')[2]}"
        if job.train.threads is None:
            settings["train.threads"] = max(1, int(self.resources.cpus))
        return load_job(dump_job(job), settings)


def with_scores(plan: SweepPlan, home: Path) -> SweepPlan:
    """Returns the plan with `knn_races` set if the races of the sweep choose the k-NN parameters.

    The races of a new sweep choose them if the space has post-hoc keys, and if the plan has fresh seeds and
    race seeds. A later command follows the first command of the sweep. If races choose them, and the plan has
    fresh seeds but no race seeds, raises UserError.
    """
    if plan.space.multi or not plan.posthoc_keys:
        return plan
    race_plan, folder = replace(plan, knn_races=True), _find_folder(plan, home)
    head, race_seeds = {} if folder is None else Ledger(folder.path).head, plan.space.search.race_seeds
    can_race = plan.seeds > 0 and race_seeds > 0
    if not (head.get("scores") == list(race_plan.scores) if head else can_race):
        return plan
    if plan.seeds and not race_seeds:
        raise UserError(
            "the races of this sweep choose k, lambda and temperature",
            file=plan.space.file,
            key="search.race_seeds",
            found=race_seeds,
            allowed="1 or more, or --fresh to begin anew",
        )
    return race_plan


def complete_plan(plan: SweepPlan, job_data: JobData, home: Path) -> SweepPlan:
    """Returns the plan with `knn_races` (see `with_scores`), `redraws` and a precision instead of `auto`.

    The precision of the sweep's first command is kept. A new sweep measures the faster one on the data of the
    swept job. It replaces `train.precision: auto` in all jobs.
    """
    precision = plan.job.train.precision
    if precision == "auto":
        precision = decide_precision(job_data, plan.resources.gpus, lambda name: is_begun(plan, name, home))
    return replace(
        with_scores(plan, home),
        job=in_precision(plan.job, precision),
        control=None if plan.control is None else in_precision(plan.control, precision),
        baselines=[(name, in_precision(job, precision)) for name, job in plan.baselines],
        redraws=redraws_validation(job_data.dataset),
    )


def is_begun(plan: SweepPlan, precision: Precision, home: Path) -> bool:
    """Whether the sweep that the command resumes has the plan's job in this precision."""
    folder = _find_folder(plan, home)
    stored_hash = None if folder is None else Ledger(folder.path).head.get("job_hash")
    return stored_hash == job_hash(in_precision(plan.job, precision))


def _find_folder(plan: SweepPlan, home: Path) -> RunFolder | None:
    """Returns the folder of the sweep that the command resumes; None for a new sweep."""
    folders = RunFolders(home, "sweeps")
    # A submitted job that is restarted resumes its own sweep, even with --fresh.
    return folders.find(submitted_id()) or (None if plan.fresh else folders.find_named(plan.name))


def sweep_identity(plan: SweepPlan, job_data: JobData, home: Path) -> dict[str, object]:
    """Returns the values that all commands of a sweep must share for its trials to be comparable."""
    search = plan.space.search
    return {
        "job_hash": job_hash(plan.job),
        "fingerprint": job_data.fingerprint,
        "scores": list(plan.scores),
        "modes": [goal.mode for goal in plan.space.goals],
        "prune_by": plan.space.metric,
        "free": list(plan.posthoc_keys),
        "scheduler": [search.scheduler, search.grace, search.reduction_factor, search.startup],
        "uri": stored_uri(tracking_uri(home), home),
    }


def sweep_folder(plan: SweepPlan, home: Path, identity: Mapping[str, object]) -> RunFolder:
    """Returns the folder of the sweep to resume, or a new one; writes nothing.

    Raises UserError if the sweep's identity differs, or if it is itself the sweep `plan.warm_start`.
    """
    folder = _find_folder(plan, home)
    if folder is None:
        return RunFolders(home, "sweeps").new_folder(submitted_id())
    head = Ledger(folder.path).head
    for key, value in identity.items():
        if head and head.get(key) != value:
            raise UserError(
                f"the sweep of this name has another {IDENTITY[key]}",
                key="--name",
                found=plan.name,
                allowed="another --name, or --fresh to begin anew",
            )
    if plan.warm_start == folder.path.name:
        raise UserError("a sweep has its own trials already", key="--warm-start", found=plan.name)
    return folder
