"""The entries of a ledger: trainings with their states and costs, confirmations, and spaces of searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from mlcl.store import RESUMABLE, State

Unit = Literal["clock", "cpu", "gpu"]
"""The unit of an amount of time: wall-clock seconds, CPU-seconds or GPU-seconds."""
Origin = Literal["", "as written", "asked for", "control", "prior", "drawn"]
"""The origin of the setting of a search trial; empty for other trainings."""


def scope_key(scope: str, name: str) -> str:
    """Returns `SCOPE.NAME`, or NAME if the scope is empty, as for the first search of a swept job."""
    return f"{scope}.{name}" if scope else name


@dataclass(frozen=True)
class Confirmation:
    """A setting that is trained again on fresh seeds, to confirm its score in a search.

    `label` is the name under which it was first confirmed. `labels` are its present names, such as its rank
    in the search; they are empty if better settings have replaced it. `roles` are names of `Role`. `race`
    says that the setting is trained for a race, which compares the best settings by their validation scores
    on further seeds. `scope` names the search that found the setting, and `trial` is the label of the search
    trial with this setting; both may be empty.
    """

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]
    scope: str = ""
    labels: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    race: bool = False
    trial: str = ""


@dataclass
class Cost:
    """The time that a training has run in all commands, and the resources that it holds.

    `began` is the timestamp of its last start, None if it does not run, and `seen` that of its last event.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    began: float | None = None
    seen: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0

    def begin(self, timestamp: float, cpus: float, gpus: float) -> None:
        """Starts to count time from `timestamp` with these resources; ends a count that still runs."""
        self.end(timestamp)
        self.began = self.seen = timestamp
        self.cpus, self.gpus = cpus, gpus

    def end(self, timestamp: float) -> None:
        """Adds the time from `began` to `timestamp` to the totals, if the training runs."""
        self.seen = max(timestamp, self.seen)
        if self.began is None:
            return
        seconds = max(0.0, timestamp - self.began)
        self.seconds += seconds
        self.cpu_seconds += seconds * self.cpus
        self.gpu_seconds += seconds * self.gpus
        self.began = None

    def used(self, unit: Unit = "clock", timestamp: float | None = None) -> float:
        """Returns the total in a unit; with a `timestamp`, including the time from `began` to it."""
        total, share = {
            "clock": (self.seconds, 1.0),
            "cpu": (self.cpu_seconds, self.cpus),
            "gpu": (self.gpu_seconds, self.gpus),
        }[unit]
        return (
            total
            if timestamp is None or self.began is None
            else total + max(0.0, timestamp - self.began) * share
        )


@dataclass
class Training:
    """The definition of a training: of a search trial, a seed of a confirmation, or a run of a table.

    `key` is also the name of its folder. `settings` are the searched values by job key, `params` are these as
    Optuna drew them, and `system_attrs` the state of its sampler. `version` numbers the space that a trial
    was drawn from, and `number` the trial. `confirmation` is the key of the confirmation of which this is one
    seed. `scope` names the search, which is empty for the first search of a swept job.
    """

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]
    version: int = 0
    number: int | None = None
    confirmation: str | None = None
    scope: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    system_attrs: dict[str, Any] = field(default_factory=dict)
    origin: Origin = ""


@dataclass
class Entry(Training):
    """A training with its state, its intermediate values as (epoch, score), and its last results (`End`)."""

    state: State = State.RUNNING
    intermediate: list[tuple[int, float]] = field(default_factory=list)
    score: float | None = None
    values: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    blocks: dict[str, tuple[float, ...]] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    neighbours: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""
    same_as: str = ""
    cost: Cost = field(default_factory=Cost)

    @property
    def resumable(self) -> bool:
        """Whether a later command resumes the training."""
        return self.state in RESUMABLE

    @property
    def ended(self) -> bool:
        """Whether the training is over, so that no later command resumes it."""
        return not self.resumable

    @property
    def results(self) -> End:
        """The `End` of a later training with the same job, which is not trained and takes these results."""
        reason = f"has the values of {self.label}, whose results it takes"
        content = {end_field.name: getattr(self, end_field.name) for end_field in fields(End)}
        return End(**{**content, "reason": reason, "same_as": self.key})

    @property
    def last_end(self) -> End:
        """The present state and reason as an `End` without results, to be written to the log again."""
        return End(self.state, self.reason)


@dataclass(frozen=True)
class End:
    """The end or the interruption of a training.

    `score` is the value that the pruner compares, and `values` has one number per goal. `chosen` holds the
    post-hoc keys (such as k of the nearest neighbours) with their chosen values. `same_as` is the key of the
    training whose results this one took, empty for none. `blocks` has for each test metric its values with
    one block of test rows left out at a time, `neighbours` the validation metric of a training in a race at
    each k, lambda and temperature, see `read_neighbours`.
    """

    state: State
    reason: str = ""
    score: float | None = None
    values: Sequence[float] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    blocks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Mapping[str, Sequence[float]] = field(default_factory=dict)
    same_as: str = ""


@dataclass(frozen=True)
class EarlierTrial:
    """A finished trial of an earlier space or another sweep; `params` is its point in the present space."""

    params: dict[str, Any]
    state: State
    values: list[float]
    intermediate: list[tuple[int, float]]


@dataclass(frozen=True)
class SpaceVersion:
    """A version of the search space of a search: all that its Optuna study needs besides the trials.

    `space` is the text of the space file. `distributions` has Optuna's distributions as JSON, by name of
    `Training.params`, and `modes` the direction of each goal. `kept` has the earlier trials that fit the
    space, by key and in the study's order; `dropped` has, for each earlier trial that does not fit, the
    reason. `warm` has the ids of other sweeps whose trials the user asked to include. `parameters` describes
    the parameters of the space as plain data.
    """

    number: int
    space_hash: str
    space: str
    distributions: Mapping[str, str]
    modes: tuple[str, ...]
    kept: Mapping[str, EarlierTrial]
    dropped: Mapping[str, str]
    warm: tuple[str, ...] = ()
    parameters: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class SearchStop:
    """The early end of a search: of `asked` trials of a space version, the last `left_out` are not run."""

    version: int
    asked: int
    left_out: int
    reason: str

    @property
    def sentence(self) -> str:
        """The early end as a sentence for the user."""
        return f"{self.left_out} of {self.asked} trials are left out: {self.reason}"
