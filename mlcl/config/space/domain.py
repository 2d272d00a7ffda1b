"""What every kind of domain does. Each kind is a module of `mlcl.config.space.domains`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from mlcl.config.space.condition import Term
from mlcl.config.space.place import Place

CLOSE = 1e-9
"""The share by which a weight may differ after it came back from what it was drawn as."""


class Misfit(Exception):  # noqa: N818 (an answer, not a fault)
    """A job that is no point of the space."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Cell:
    """Values of a parameter for which the same conditions hold: one of them, and their number."""

    value: Any
    count: int | None
    """None: a continuum."""


@dataclass(frozen=True)
class Dimension:
    """One value that a search draws from [low, high]: a number, a whole number or a position in a list."""

    kind: Literal["number", "whole", "position"]
    low: float
    high: float
    log: bool = False


class Domain(ABC):
    """What a parameter may be. `name` is always that of the parameter, `settings` are by the job's keys."""

    kinds: ClassVar[tuple[str, ...]]
    """What a space file calls it."""
    continuous: ClassVar[bool] = False
    """Whether its values cannot all be tried."""
    listed: ClassVar[bool] = False
    """Whether its values are listed one by one. They may be of any type, and whole sections of a job."""
    joint: ClassVar[bool] = False
    """Whether its keys are drawn together, so that none has a range of its own."""
    not_posthoc: ClassVar[str | None] = None
    """Why a key that is answered after training cannot be of this kind; None: it can."""

    @classmethod
    @abstractmethod
    def read(cls, place: Place, kind: str, value: Any, keys: tuple[str, ...]) -> Self:
        """The domain of these keys, from what stands beside the kind in a space file. Raises UserError."""

    @classmethod
    def shared_with(cls, place: Place, value: Any) -> Sequence[str] | None:
        """Patterns of the keys that share one parameter with the entry's own; None: each key has its own.

        Raises UserError.
        """
        del place, value
        return None

    def resolved(self, place: Place, resolve: Callable[[Any], Any]) -> Domain:
        """The same with its values as the job has them: `resolve` fills in defaults. Raises UserError."""
        del place, resolve
        return self

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The keys of the job that it sets."""
        return (name,)

    @abstractmethod
    def ends(self, name: str) -> list[dict[str, Any]]:
        """Settings at its ends, or with each of its values, at which it may break a job."""

    @abstractmethod
    def cells(self, name: str, asked: Sequence[Term]) -> list[Cell]:
        """Its values in groups: each of these terms holds for a whole group or for none of it."""

    @abstractmethod
    def grid(self) -> tuple[Any, ...]:
        """The values at which a key that is answered after training is scored."""

    @abstractmethod
    def dimensions(self, name: str) -> dict[str, Dimension]:
        """What is drawn for it, by names of its own."""

    @abstractmethod
    def settings_at(self, name: str, point: Mapping[str, Any]) -> dict[str, Any]:
        """Settings where its dimensions are at this point."""

    @abstractmethod
    def point_of(self, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """Its dimensions where the settings of a flat job are. Raises Misfit."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Its kind and its values as plain data."""
