"""Finds the keys of a job that a pattern in a space file matches, and evaluates conditions on keys."""

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
"""The post-hoc keys, all of whose values are scored after training, mapped to the keys of their grids."""
FIXED = (
    "experiment", "data.source", "data.path", "data.options", "data.split_seed", "data.validation_seed",
    "data.hold_out", "objective.classifier.labels", "train.seed", "train.workers", "train.device",
    "train.threads", "evaluation.metric", "evaluation.margin", "evaluation.bands", "evaluation.threshold",
    "evaluation.at_least_one", "evaluation.knn.grid", "baseline", "plugins", "tracking",
)  # fmt: skip
"""Keys that a space may not vary, since trials that differ in them could not be compared."""
_OPTION = re.compile(r"(objective\.heads\.[^.]+)\.options\.[^.*]+")


@dataclass(frozen=True)
class Term:
    """A condition on a key: the value is one of `values`, or a number above `above` and below `below`.

    `otherwise` is the value in the job, which is used if no value was drawn for the key.
    """

    key: str
    values: tuple[Any, ...] = ()
    above: float | None = None
    below: float | None = None
    otherwise: Any = None

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether the condition holds for the settings drawn so far."""
        value = setting_of(settings, self.key, self.otherwise)
        if self.values:
            return any(are_equal(value, other) for other in self.values)
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
    """Returns the error for an entry of the section `space` of a space file."""
    return UserError(problem, key=f"space.{entry}", found=found, allowed=allowed)


def are_equal(first: object, second: object) -> bool:
    """Whether two values are equal. 1 equals 1.0, but not True."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def setting_of(settings: Mapping[str, Any], key: str, otherwise: Any) -> Any:
    """Returns the value of a dotted key in `settings`, or `otherwise` if they do not have the key.

    A setting of a whole section also gives the values of the keys in it, and None for keys that it lacks.
    """
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        section = ".".join(parts[:depth])
        if section in settings:
            value = settings[section]
            for part in parts[depth:]:
                value = value.get(part) if isinstance(value, Mapping) else None
            return value
    return otherwise


def nodes(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields every dotted key of nested mappings, including the keys of sections."""
    for key, value in tree.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from nodes(value, f"{prefix}{key}.")


def matches(entry: str, pattern: str, known_keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the keys that match a pattern, each with the texts that the pattern's `*` matched.

    A `*` matches any text within one part of a key. An option of a head's loss need not be in `known_keys`,
    since a job has only the options that differ from the loss's defaults. Raises UserError for `entry`, a key
    of the space file, if no key matches, or if one is in `FIXED`.
    """
    known_keys = list(known_keys)
    option = _OPTION.fullmatch(pattern)
    expression = re.compile("([^.]*)".join(map(re.escape, (option[1] if option else pattern).split("*"))))
    suffix = pattern.removeprefix(option[1]) if option else ""
    pairs = ((key, expression.fullmatch(key)) for key in known_keys)
    keys = {f"{key}{suffix}": match.groups() for key, match in pairs if match}
    if not keys:
        raise unknown_key(entry, pattern, known_keys)
    for key in keys:
        # An entry for a section varies all keys of the section.
        if any(covers(fixed_key, key) or covers(key, fixed_key) for fixed_key in FIXED):
            raise entry_error(entry, "all trials share this key", key)
    return keys


def unknown_key(entry: str, key: str, known_keys: Iterable[str]) -> UserError:
    """Returns the error for a key that the job lacks, which suggests the most similar key of the job."""
    problem = f"names no key of the job{did_you_mean(key, known_keys)}"
    return entry_error(entry, problem, key, "a key path of the job, * for one part of it")


def bind(entry: str, pattern: str, stars: tuple[str, ...]) -> str:
    """Returns a condition's key `pattern` with each `*` replaced by a text in `stars`, in order.

    Raises UserError if the pattern has more `*` than there are texts.
    """
    parts = pattern.split("*")
    if len(parts) - 1 > len(stars):
        problem = "has a * that the parameter's key does not bind"
        raise entry_error(entry, problem, pattern, f"at most {len(stars)} *")
    return parts[0] + "".join(star + part for star, part in zip(stars, parts[1:], strict=False))
