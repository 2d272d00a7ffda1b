"""A checked space: its parameters, the branches that their conditions make, and settings at all ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.job import covers
from mlcl.config.space.domains import Choice, Domain
from mlcl.config.space.keys import Term
from mlcl.config.space.search import Goal, Mode, SearchConfig


@dataclass(frozen=True)
class Parameter:
    """A key of the job and its domain; a simplex sets several keys under one name.

    It exists, which means that it is drawn, where all its `terms` hold.
    """

    name: str
    domain: Domain
    terms: tuple[Term, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the job that it sets."""
        return self.domain.keys_of(self.name)

    @property
    def condition(self) -> str | None:
        """The terms in words; None without terms."""
        return ", ".join(map(str, self.terms)) or None

    def exists(self, settings: Mapping[str, Any]) -> bool:
        """Whether it is drawn, given the settings of the parameters before it."""
        return all(term.holds(settings) for term in self.terms)

    def needs(self, others: Iterable[Parameter]) -> list[str]:
        """Names of the parameters that are drawn before it.

        These are the parameters in its condition, and those that set a whole section that contains its key.
        """
        return [
            other.name
            for other in others
            if any(covers(other.name, term.key) for term in self.terms)
            or (other.name != self.name and any(covers(other.name, key) for key in self.keys))
        ]


@dataclass(frozen=True)
class Space:
    """A checked space.

    Attributes:
        parameters: the parameters that are drawn; each after those in its condition.
        posthoc: values of the keys that are scored after training.
        search: how the space is searched.
        goals: the metrics that the search follows.
        prune_by: the goal by which trials stop early: the only one, where there is one alone.
        file: the space file.
        prior: settings of other data sets, with which the search begins after the job as written.
    """

    parameters: tuple[Parameter, ...]
    posthoc: Mapping[str, tuple[Any, ...]]
    search: SearchConfig
    goals: tuple[Goal, ...]
    prune_by: Goal
    file: Path | None = None
    prior: tuple[Mapping[str, Any], ...] = ()

    @property
    def metric(self) -> str:
        """The metric by which trials stop early."""
        return self.prune_by.metric

    @property
    def mode(self) -> Mode:
        """Whether more or less of `metric` is better."""
        return self.prune_by.mode

    @property
    def multi(self) -> bool:
        """Whether there are several goals, and so a Pareto front instead of one best trial."""
        return len(self.goals) > 1


def branches(
    parameters: Sequence[Parameter], terms: Sequence[Term] | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields one setting for each set of settings that meet the same conditions, with the size of that set.

    Args:
        parameters: Parameters of a space, in its order.
        terms: The conditions; by default the conditions of these parameters.
    """
    if terms is None:
        terms = [term for parameter in parameters for term in parameter.terms]
    if not parameters:
        yield {}, 1
        return
    last = parameters[-1]
    asked = [term for term in terms if covers(last.name, term.key)]
    for settings, count in branches(parameters[:-1], terms):
        if last.exists(settings):
            for value, number in last.domain.groups(last.name, asked):
                yield {**settings, last.name: value}, count * number
        else:
            yield settings, count


def branch_to(target: Parameter, parameters: Sequence[Parameter]) -> dict[str, Any] | None:
    """Settings under which `target` exists, of the parameters that decide it; None if it never exists."""
    wanted = {target.name}
    for parameter in reversed(parameters):
        if parameter.name in wanted:
            wanted.update(parameter.needs(parameters))
    deciding = [p for p in parameters if p.name in wanted and p is not target]
    terms = [term for parameter in parameters for term in parameter.terms]
    return next((found for found, _ in branches(deciding, terms) if target.exists(found)), None)


def corners(space: Space) -> list[dict[str, Any]]:
    """Overrides at the ends of all ranges, with every choice in turn and in every branch of `when`.

    Their number grows with the sum of the numbers of values, not with the product.
    """
    found = [_filled(space, {}, 0), _filled(space, {}, -1), dict(space.posthoc)]
    for parameter in space.parameters:
        if not parameter.terms and not isinstance(parameter.domain, Choice):
            continue
        branch = branch_to(parameter, space.parameters) or {}
        found += [_filled(space, {**branch, **end}, -1) for end in parameter.domain.ends(parameter.name)]
    return found


def _filled(space: Space, given: dict[str, Any], end: int) -> dict[str, Any]:
    """The given settings, and an end of all other parameters that then exist."""
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            chosen = {key: given[key] for key in parameter.keys if key in given}
            settings |= chosen or parameter.domain.ends(parameter.name)[end]
    return settings
