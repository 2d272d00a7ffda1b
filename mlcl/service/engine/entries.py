"""What a ledger holds: trainings as they stand, settings that are confirmed, spaces that were searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.tracking import State

Unit = Literal["clock", "cpu", "gpu"]
"""The unit of an amount of time: seconds of the clock, of CPUs or of GPUs."""


def scoped(scope: str, name: str) -> str:
    """A key of a search's own where a ledger holds several; the plain name where it holds one."""
    return f"{scope}.{name}" if scope else name


@dataclass(frozen=True)
class Group:
    """A setting that is confirmed on fresh seeds, in the search `scope`.

    `labels` are the names that it has now, with its rank in the search; empty where it is no candidate any
    more. `roles` are the names of its roles, `model` and `baseline`.
    """

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]
    scope: str = ""
    labels: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


@dataclass
class Cost:
    """What a training took over all sessions, and since when it runs with how many CPUs and GPUs.

    Seconds, CPU-seconds and GPU-seconds. `began` is None while it does not run; `seen` is the time at which
    it was last heard of.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    began: float | None = None
    seen: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0

    def begin(self, at: float, cpus: float, gpus: float) -> None:
        """It runs from now on and holds this much; an earlier stretch ends."""
        self.end(at)
        self.began = self.seen = at
        self.cpus, self.gpus = cpus, gpus

    def end(self, at: float) -> None:
        """Adds the present stretch, if there is one."""
        if self.began is None:
            return
        seconds = max(0.0, at - self.began)
        self.seconds += seconds
        self.cpu_seconds += seconds * self.cpus
        self.gpu_seconds += seconds * self.gpus
        self.began = None

    def used(self, unit: Unit = "clock", at: float | None = None) -> float:
        """Returns the seconds in a unit, with the present stretch up to `at`."""
        total, share = {
            "clock": (self.seconds, 1.0),
            "cpu": (self.cpu_seconds, self.cpus),
            "gpu": (self.gpu_seconds, self.gpus),
        }[unit]
        return total if at is None or self.began is None else total + max(0.0, at - self.began) * share


@dataclass
class Training:
    """What is trained: a search trial (`number`), a seed of a confirmation (`group`), or a table's run.

    A search trial has the `params` that Optuna drew for it in the space `version`, in their order, and the
    `system_attrs` that the sampler keeps with it, such as the state of CMA-ES. `scope` names the search where
    a ledger holds several.
    """

    key: str
    label: str
    job: dict[str, Any]
    settings: dict[str, Any]
    version: int = 0
    number: int | None = None
    group: str | None = None
    scope: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    system_attrs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Entry(Training):
    """A training as it stands: `rungs` are its validations as (epoch, score); the rest is of its last end."""

    state: State = State.RUNNING
    rungs: list[tuple[int, float]] = field(default_factory=list)
    score: float | None = None
    values: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    cost: Cost = field(default_factory=Cost)

    @property
    def resumable(self) -> bool:
        """Whether a later command goes on with it."""
        return self.state in (State.RUNNING, State.STOPPED, State.BUDGET)

    @property
    def ended(self) -> bool:
        """Whether it is settled for good."""
        return not self.resumable

    @property
    def last_end(self) -> End:
        """State and reason, as a repeated close needs them."""
        return End(self.state, self.reason)


@dataclass(frozen=True)
class End:
    """How a training ends, or is interrupted.

    `score` is the pruning goal's, `values` has one number for each goal; `chosen` are the post-hoc keys that
    gave them, `metrics` all figures.
    """

    state: State
    reason: str = ""
    score: float | None = None
    values: Sequence[float] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierTrial:
    """A finished trial of an earlier space or another sweep; `params` is its point in the present space."""

    params: dict[str, Any]
    state: State
    values: list[float]
    rungs: list[tuple[int, float]]

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> EarlierTrial:
        """Reads the trial from JSON."""
        rungs = [(int(epoch), float(score)) for epoch, score in content["rungs"]]
        return cls(content["params"], State(content["state"]), content["values"], rungs)


@dataclass(frozen=True)
class SpaceVersion:
    """A space that was searched: all that its Optuna study needs besides the trials.

    `distributions` has Optuna's distributions as JSON, by the names of `Training.params`, and `modes` the
    direction of each goal. `kept` has the earlier trials that fit the space by their keys, in the order in
    which the study has them; `dropped` says why the others do not; `warm` names the other sweeps whose trials
    were asked for.
    """

    number: int
    space_hash: str
    space: str
    distributions: Mapping[str, str]
    modes: tuple[str, ...]
    kept: Mapping[str, EarlierTrial]
    dropped: Mapping[str, str]
    warm: tuple[str, ...] = ()
