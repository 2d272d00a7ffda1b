"""Results of trainings, and of settings that were trained again on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, computed_field

from mlcl.significance.roles import Role
from mlcl.tracking import State

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float. JSON has no NaN and no infinity, which are written as null and read as NaN."""
RoleField = Annotated[
    Role,
    PlainValidator(lambda names: names if isinstance(names, Role) else Role.named(names)),
    PlainSerializer(lambda role: [each.name.lower() for each in role]),
]
"""The roles of a setting or an arm, as a list of names in JSON."""
RunId = Annotated[str | None, Field(alias="mlflow_run_id")]
"""The id of a run in MLflow, None where the run has not been delivered."""


def training_folder(owner: Path, key: str) -> Path:
    """The folder of a training in the folder of its sweep or table."""
    return owner / "trials" / key


@dataclass(frozen=True)
class TrainingResult:
    """A training: a search trial (with a `number`), a seed of a confirmed setting, or of a table's cell.

    Attributes:
        key: The training's key in its sweep or table.
        label: The name for people.
        settings: The values of the searched keys.
        score: The value of the sweep's score; the last intermediate value of a training that is not COMPLETE.
        values: The final value of each goal.
        chosen: The post-hoc keys (k, lambda, temperature) that gave the score.
        metrics: The final metrics.
        blocks: The metrics of test without each block of its rows; empty where test was not read.
        intermediate: The score's (epoch, value) at each validation.
        changes: The parameters that differ from those of the search, setting or cell, None for a lacking key.
        fingerprint: Digest of the data set with its split.
        started: Milliseconds since 1970, None where the training's log is gone.
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
        """The epoch of the last intermediate value, 0 without one."""
        return self.intermediate[-1][0] if self.intermediate else 0

    def params(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The training's parameters, from those that it shares with others."""
        return {key: value for key, value in {**shared, **self.changes}.items() if value is not None}


def changes(shared: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The `params` that differ from the `shared` ones, and None for each key that they lack."""
    differing = {key: value for key, value in params.items() if key not in shared or shared[key] != value}
    return differing | dict.fromkeys(shared.keys() - params.keys())


@dataclass(frozen=True)
class SettingResult:
    """A setting that was trained again on fresh seeds.

    Attributes:
        name: What the setting is: a baseline's name, `as written` or `trial 3`. It does not change, and no
            two settings of a sweep share one.
        labels: The names that the setting has now, with its rank: `best found (trial 3)`. Several where it
            is a baseline, too, or the job as written. Empty where it is no candidate any more.
        role: Whether it is a model or a baseline, and of the control.
        arm: The arm whose search found it; `search` is the number of the search.
        trial: The label of the search trial that it is, empty for none.
        order: Its position among the settings by the time at which they were first confirmed.
        params: The parameters of its job, without the seeds.
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
        """The names that it has now, in one text."""
        return " = ".join(self.labels)

    @property
    def is_fitted(self) -> bool:
        """Whether it is a baseline that is fitted, not trained: it has no embedding and no neighbours."""
        return "baseline" in self.params

    def metric_values(self, metric: str) -> list[float]:
        """The metric of every seed that has it."""
        return [seed.metrics[metric] for seed in self.seeds if metric in seed.metrics]
