"""Which keys of a job a pattern of the space file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlcl.config.space.condition import covers
from mlcl.config.space.place import Place
from mlcl.errors import UserError, did_you_mean

POSTHOC = {
    "evaluation.knn.k": "evaluation.knn.grid.k",
    "evaluation.knn.lambda": "evaluation.knn.grid.lambda",
    "evaluation.knn.temperature": "evaluation.knn.grid.temperature",
}
"""Keys that are answered after training from one retrieval, and the grid that answers each."""
FIXED = (
    "experiment",
    "data.source",
    "data.path",
    "data.options",
    "data.split_seed",
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


def nodes(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of nested mappings, those of whole sections too."""
    for key, value in tree.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from nodes(value, f"{prefix}{key}.")


def matches(place: Place, pattern: str, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The keys that match a pattern, each with the texts that its `*` matched. Raises UserError for none.

    `*` is any text within one part of the key. An option of a head's loss need not stand in the job, which
    writes only those that differ from the loss's own.
    """
    known = list(known)
    option = _OPTION.fullmatch(pattern)
    found = _expand(option[1] if option else pattern, known)
    if option:
        found = {f"{key}{pattern.removeprefix(option[1])}": stars for key, stars in found.items()}
    if not found:
        raise unknown_key(place, pattern, known)
    for key in found:
        # A whole section is varied with all that is in it.
        if any(covers(fixed, key) or covers(key, fixed) for fixed in FIXED):
            raise place.error("all trials share this key", key)
    return found


def unknown_key(place: Place, key: str, known: Iterable[str]) -> UserError:
    """The error for a key that the job does not have, with the nearest that it has."""
    problem = f"names no key of the job{did_you_mean(key, known)}"
    return place.error(problem, key, "a key path of the job, * for one part of it")


def _expand(pattern: str, known: Iterable[str]) -> dict[str, tuple[str, ...]]:
    expression = re.compile("([^.]*)".join(map(re.escape, pattern.split("*"))))
    found = ((key, expression.fullmatch(key)) for key in known)
    return {key: match.groups() for key, match in found if match}


def bind(place: Place, pattern: str, stars: tuple[str, ...]) -> str:
    """A condition's key, with each `*` replaced by the text that it matched in the parameter's key."""
    if pattern.count("*") > len(stars):
        raise place.error(
            "has a * that the parameter's key does not bind", pattern, f"at most {len(stars)} *"
        )
    parts = pattern.split("*")
    return parts[0] + "".join(star + part for star, part in zip(stars, parts[1:], strict=False))
