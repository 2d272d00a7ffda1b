"""The dataclasses of a training's result, and of a setting that was trained again on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, computed_field

from mlcl.significance.arms import Outcome
from mlcl.significance.roles import Role
from mlcl.tracking import State

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float that may be NaN or infinite: JSON has neither, so both are written as null and read as NaN."""
RoleField = Annotated[
    Role,
    PlainValidator(lambda names: names if isinstance(names, Role) else Role.from_names(names)),
    PlainSerializer(lambda role: role.names),
]
"""The roles of a setting or an arm, as a list of names in JSON."""
RunId = Annotated[str | None, Field(alias="mlflow_run_id")]
"""The id of a run in MLflow, None where the run has not been sent there yet."""


def training_folder(owner: Path, key: str) -> Path:
    """Returns the folder of the training `key` in the folder `owner` of its sweep or table."""
    return owner / "trials" / key


@dataclass(frozen=True)
class TrainingResult:
    """A training: a search trial (with a `number`), a seed of a confirmed setting, or of a table's cell.

    Attributes:
        key: The training's key in its sweep or table, which is unique there.
        label: The name that is shown to the user.
        settings: The values of the searched keys.
        score: The value of the sweep's score; the last intermediate value if the training is not COMPLETE.
        values: The final value of each goal of the sweep.
        chosen: The values of the post-hoc keys (k, lambda, temperature) that gave the score.
        metrics: The final metrics.
        blocks: For each test metric, its values with one block of test rows left out at a time (jackknife);
            empty where the test split was not evaluated.
        reason: Why the training has its state; empty for none.
        intermediate: The (epoch, score) pairs of all validations.
        changes: The parameters that differ from those of its search, setting or cell; None for a key that
            the training lacks.
        fingerprint: The digest of the data set with its split.
        started: The start time in milliseconds since 1970 (UTC), None where the training's log is gone.
        seconds: The wall-clock duration over all sessions, None if unknown.
        cpu_seconds: The duration times the number of CPUs that it held; `gpu_seconds` likewise.
        origin: Where the setting of a search trial is from: `as written`, `asked for`, `control`, `prior` or
            `drawn`; empty for other trainings.
        log: The id of its log: MLflow's run has it as the tag `mlcl.log`.
    """

    key: str
    label: str
    state: State
    settings: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    values: tuple[Number, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Number] = field(default_factory=dict)
    blocks: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    reason: str = ""
    intermediate: tuple[tuple[int, Number], ...] = ()
    number: int | None = None
    origin: str = ""
    seed: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    job_hash: str = ""
    fingerprint: str = ""
    started: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    log: str = ""
    run_id: RunId = None

    @computed_field
    @property
    def epoch(self) -> int:
        """The epoch of the last validation, 0 before the first."""
        return self.intermediate[-1][0] if self.intermediate else 0

    def outcome(self, metric: str) -> Outcome:
        """Returns the value of a metric that the training has, with its values without each block."""
        blocks = tuple(self.blocks.get(metric, ()))
        return Outcome(self.seed or 0, self.metrics[metric], blocks, self.job_hash)

    def params(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the training's parameters: the `shared` ones, updated with its `changes`."""
        return {key: value for key, value in {**shared, **self.changes}.items() if value is not None}


def changes(shared: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `params` that differ from `shared`, with None for each key that only `shared` has."""
    differing = {key: value for key, value in params.items() if key not in shared or shared[key] != value}
    return differing | dict.fromkeys(shared.keys() - params.keys())


@dataclass(frozen=True)
class SettingResult:
    """A setting that was trained again on fresh seeds.

    Attributes:
        name: The setting's permanent name, unique in the sweep: a baseline's name, `as written` or `trial 3`.
        labels: The names that the setting has now, with its rank: `best found (trial 3)`. It has several if
            it is also a baseline or the job as written, and none if it is no candidate any more.
        seeds: The trainings on fresh seeds.
        role: Model or baseline; a control is both a control and a baseline.
        arm: The arm whose search found it; `search` is the number of the search.
        trial: The label of the search trial with the same settings, empty for none.
        order: The position of the setting in the order in which the sweep's settings were first confirmed.
        params: The parameters of the setting's job, without the seeds.
    """

    key: str
    labels: tuple[str, ...]
    state: State
    settings: Mapping[str, Any]
    seeds: tuple[TrainingResult, ...]
    name: str = ""
    role: RoleField = Role.MODEL
    order: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    job_hash: str = ""
    log: str = ""
    run_id: RunId = None
    arm: str = ""
    search: int = 1
    trial: str = ""

    @computed_field
    @property
    def label(self) -> str:
        """The setting's current names, joined by ` = `."""
        return " = ".join(self.labels)

    @property
    def is_fitted(self) -> bool:
        """Whether the setting is a fitted baseline, which has no embeddings and thus no neighbours."""
        return "baseline" in self.params

    def metric_values(self, metric: str) -> list[float]:
        """Returns the values of a metric over the seeds that have it."""
        return [seed.metrics[metric] for seed in self.seeds if metric in seed.metrics]
