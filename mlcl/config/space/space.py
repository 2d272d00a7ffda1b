"""A checked space with its parameters, the branches of its conditions, and the settings at its corners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.job import covers
from mlcl.config.space.domains import Choice, Domain, Simplex
from mlcl.config.space.keys import Term
from mlcl.config.space.search import Goal, Mode, SearchConfig


@dataclass(frozen=True)
class Parameter:
    """A parameter of a space: a key of the job with its domain, or several keys that a simplex sets.

    The parameter exists, which means that it is drawn, only if all its `terms` hold.
    """

    name: str
    domain: Domain
    terms: tuple[Term, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the job that the parameter sets."""
        return self.domain.keys if isinstance(self.domain, Simplex) else (self.name,)

    @property
    def condition(self) -> str | None:
        """The terms as text; None if there are no terms."""
        return ", ".join(map(str, self.terms)) or None

    def exists(self, settings: Mapping[str, Any]) -> bool:
        """Whether the parameter is drawn, given the settings of the parameters before it."""
        return all(term.holds(settings) for term in self.terms)

    def needs(self, others: Iterable[Parameter]) -> list[str]:
        """Returns the names of the parameters in `others` that must be drawn before this parameter.

        Such parameters set a key in the condition of this one, or a whole section that contains its key.
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
        parameters: The parameters that are drawn, each after the parameters in its condition.
        posthoc: The values of post-hoc keys, keyed by the key of the grid that has them in a job.
        search: The section `search` of the space file.
        goals: The metrics that the search optimises, with their modes.
        prune_by: The goal by which trials stop early, one of `goals`.
        file: The space file.
        prior: Settings from other data sets, which the search tries after the job as written.
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
        """Whether `metric` is maximised or minimised."""
        return self.prune_by.mode

    @property
    def multi(self) -> bool:
        """Whether the space has several goals, so that a Pareto front takes the place of the best trial."""
        return len(self.goals) > 1


def branches(
    parameters: Sequence[Parameter], terms: Sequence[Term] | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields one example of each set of settings that meet the same conditions, and the size of the set.

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
    last_terms = [term for term in terms if covers(last.name, term.key)]
    for settings, count in branches(parameters[:-1], terms):
        if last.exists(settings):
            for value, number in last.domain.groups(last.name, last_terms):
                yield {**settings, last.name: value}, count * number
        else:
            yield settings, count


def branch_to(target: Parameter, parameters: Sequence[Parameter]) -> dict[str, Any] | None:
    """Returns settings of the parameters that `target` needs, such that it is drawn, or None."""
    needed_names = {target.name}
    for parameter in reversed(parameters):
        if parameter.name in needed_names:
            needed_names.update(parameter.needs(parameters))
    ancestors = [other for other in parameters if other.name in needed_names and other is not target]
    terms = [term for parameter in parameters for term in parameter.terms]
    return next((settings for settings, _ in branches(ancestors, terms) if target.exists(settings)), None)


def corners(space: Space) -> list[dict[str, Any]]:
    """Returns the overrides with which a job is checked for a space.

    They are the lower ends of all ranges, the upper ends of all ranges, the post-hoc grids, each listed
    value, and the ends of each parameter that has a condition. Their number grows with the sum of the numbers
    of values, and not with the product.
    """
    overrides = [_fill_settings(space, {}, 0), _fill_settings(space, {}, -1), dict(space.posthoc)]
    for parameter in space.parameters:
        if not parameter.terms and not isinstance(parameter.domain, Choice):
            continue
        branch = branch_to(parameter, space.parameters) or {}
        overrides += [
            _fill_settings(space, {**branch, **end}, -1) for end in parameter.domain.ends(parameter.name)
        ]
    return overrides


def _fill_settings(space: Space, values: dict[str, Any], end: int) -> dict[str, Any]:
    """Returns the settings in `values` and, of each other parameter that exists, `domain.ends(name)[end]`."""
    settings: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.exists(settings):
            known_values = {key: values[key] for key in parameter.keys if key in values}
            settings |= known_values or parameter.domain.ends(parameter.name)[end]
    return settings
