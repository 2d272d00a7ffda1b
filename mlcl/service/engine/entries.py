"""The entries of a ledger: trainings with their states and costs, confirmations, and spaces of searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlcl.tracking import State

Unit = Literal["clock", "cpu", "gpu"]
"""The unit of an amount of time: seconds of the clock, of CPUs or of GPUs."""


def scoped(scope: str, name: str) -> str:
    """Returns `SCOPE.NAME` for a search with a scope, and the plain name for the one search of a sweep."""
    return f"{scope}.{name}" if scope else name


@dataclass(frozen=True)
class Confirmation:
    """A setting that is trained again on fresh seeds, to confirm its score in a search.

    Attributes:
        key: Its key in the ledger.
        label: The name under which it was confirmed first.
        job: The job with the setting.
        settings: The values that were drawn.
        scope: The search that found it, in a ledger with several.
        labels: Its present names, with its rank in the search; empty once better settings replaced it.
        roles: `model`, `baseline` or both.
        race: Whether it is an entrant of its search's race, whose seeds are compared on validation alone.
        trial: The label of the search trial that it is; empty for none.
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
    """The time that a training has taken over all commands, in seconds, CPU-seconds and GPU-seconds.

    `began` is the time since which it runs, None while it does not; `seen` is the time of its last event.
    `cpus` and `gpus` are those that it holds while it runs.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    began: float | None = None
    seen: float = 0.0
    cpus: float = 0.0
    gpus: float = 0.0

    def begin(self, at: float, cpus: float, gpus: float) -> None:
        """Starts a stretch with these resources, and ends an earlier one."""
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
    """A training as it was opened: a search trial, a seed of a confirmation, or a run of a table.

    Attributes:
        key: Its key in the ledger and the name of its folder.
        label: Its name for people.
        job: Its resolved job.
        settings: The values that were drawn, by job keys.
        version: The number of the space version that a trial was drawn from.
        number: The number of a search trial; None for other trainings.
        confirmation: The key of the confirmation whose seed it is; None for other trainings.
        scope: The search that it belongs to, in a ledger with several.
        params: The point of a trial, as Optuna drew it.
        system_attrs: What the sampler keeps with a trial, such as the state of CMA-ES.
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


@dataclass
class Entry(Training):
    """A training with its intermediate values, as (epoch, score), and the results of its last end."""

    state: State = State.RUNNING
    intermediate: list[tuple[int, float]] = field(default_factory=list)
    score: float | None = None
    values: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    blocks: dict[str, tuple[float, ...]] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    neighbours: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""
    cost: Cost = field(default_factory=Cost)

    @property
    def resumable(self) -> bool:
        """Whether a later command goes on with it."""
        return self.state in (State.RUNNING, State.STOPPED, State.BUDGET)

    @property
    def ended(self) -> bool:
        """Whether no later command goes on with it."""
        return not self.resumable

    @property
    def last_end(self) -> End:
        """State and reason, as a repeated close needs them."""
        return End(self.state, self.reason)


@dataclass(frozen=True)
class End:
    """The end or the interruption of a training.

    `score` is the value of the goal that trials are pruned by, `values` has one number per goal; `chosen` are
    the values of post-hoc keys that gave them, `metrics` all metrics, and `blocks` those of test without each
    block of its rows. `neighbours` is the grid of a training in a race, see `read_neighbours`.
    """

    state: State
    reason: str = ""
    score: float | None = None
    values: Sequence[float] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    blocks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    neighbours: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class EarlierTrial:
    """A finished trial of an earlier space or another sweep; `params` is its point in the present space."""

    params: dict[str, Any]
    state: State
    values: list[float]
    intermediate: list[tuple[int, float]]

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> EarlierTrial:
        """Reads the trial from JSON."""
        values = [(int(epoch), float(score)) for epoch, score in content["intermediate"]]
        return cls(content["params"], State(content["state"]), content["values"], values)


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


@dataclass(frozen=True)
class SearchStop:
    """The early end of a search: of `asked` trials of a space `version`, `left_out` are not drawn."""

    version: int
    asked: int
    left_out: int
    reason: str

    @property
    def sentence(self) -> str:
        """The end in words."""
        return f"{self.left_out} of {self.asked} trials are left out: {self.reason}"
