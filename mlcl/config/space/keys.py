"""Keys of a job in a space file: which keys a pattern names, and conditions on keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlcl.config.job import covers
from mlcl.errors import UserError, did_you_mean

POSTHOC = {
    "evaluation.knn.k": "evaluation.knn.grid.k",
    "evaluation.knn.lambda": "evaluation.knn.grid.lambda",
    "evaluation.knn.temperature": "evaluation.knn.grid.temperature",
}
"""Keys that are scored after training from one retrieval, and the grid with the values of each."""
FIXED = (
    "experiment",
    "data.source",
    "data.path",
    "data.options",
    "data.split_seed",
    "data.validation_seed",
    "data.hold_out",
    "train.seed",
    "train.workers",
    "train.device",
    "train.threads",
    "evaluation.metric",
    "evaluation.threshold",
    "evaluation.at_least_one",
    "evaluation.knn.grid",
    "plugins",
)
"""Keys that all trials of a sweep share: otherwise their scores could not be compared."""
_OPTION = re.compile(r"(objective\.heads\.[^.]+)\.options\.[^.*]+")


@dataclass(frozen=True)
class Term:
    """A condition on a key: its value is one of `values`, or a number between `above` and `below`.

    `otherwise` is the job's own value, which counts where no value has been drawn for the key.
    """

    key: str
    values: tuple[Any, ...] = ()
    above: float | None = None
    below: float | None = None
    otherwise: Any = None

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether it holds where these settings have been drawn."""
        value = setting_of(settings, self.key, self.otherwise)
        if self.values:
            return any(same(value, each) for each in self.values)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)

    def __str__(self) -> str:
        if self.values:
            return f"{self.key} is {' or '.join(map(str, self.values))}"
        bounds = {"above": self.above, "below": self.below}
        limits = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
        return f"{self.key} is {limits}"


def entry_error(entry: str, problem: str, found: object = None, allowed: object = None) -> UserError:
    """The error at an entry of the section `space` of a space file."""
    return UserError(problem, key=f"space.{entry}", found=found, allowed=allowed)


def same(one: object, other: object) -> bool:
    """Whether two values are equal, where 1 equals 1.0 but not True."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def setting_of(settings: Mapping[str, Any], key: str, otherwise: Any) -> Any:
    """The setting of a dotted key, also where the settings have a whole section that contains it."""
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        outer = ".".join(parts[:depth])
        if outer in settings:
            value = settings[outer]
            for part in parts[depth:]:
                value = value.get(part) if isinstance(value, Mapping) else None
            return value
    return otherwise


def nodes(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of nested mappings, the keys of whole sections included."""
    for key, value in tree.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from nodes(value, f"{prefix}{key}.")


def matches(entry: str, pattern: str, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The keys that match a pattern, each with the texts that its `*` matched.

    `*` is any text within one part of the key. An option of a head's loss may be missing in `known`, as a job
    has only the options that differ from the loss's defaults.

    Raises:
        UserError: at the entry, if no key matches or if all trials share one that does.
    """
    known = list(known)
    option = _OPTION.fullmatch(pattern)
    expression = re.compile("([^.]*)".join(map(re.escape, (option[1] if option else pattern).split("*"))))
    rest = pattern.removeprefix(option[1]) if option else ""
    matched = ((key, expression.fullmatch(key)) for key in known)
    found = {f"{key}{rest}": match.groups() for key, match in matched if match}
    if not found:
        raise unknown_key(entry, pattern, known)
    for key in found:
        # A whole section is varied with all keys in it.
        if any(covers(fixed, key) or covers(key, fixed) for fixed in FIXED):
            raise entry_error(entry, "all trials share this key", key)
    return found


def unknown_key(entry: str, key: str, known: Iterable[str]) -> UserError:
    """The error for a key that the job does not have, with the nearest that it has."""
    problem = f"names no key of the job{did_you_mean(key, known)}"
    return entry_error(entry, problem, key, "a key path of the job, * for one part of it")


def bind(entry: str, pattern: str, stars: tuple[str, ...]) -> str:
    """A condition's key, with each `*` replaced by the text that it matched in the parameter's key."""
    parts = pattern.split("*")
    if len(parts) - 1 > len(stars):
        problem = "has a * that the parameter's key does not bind"
        raise entry_error(entry, problem, pattern, f"at most {len(stars)} *")
    return parts[0] + "".join(star + part for star, part in zip(stars, parts[1:], strict=False))
