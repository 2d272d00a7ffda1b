"""From the entries of a space file to parameters, their conditions aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcl.config.job import dump_job
from mlcl.config.loader import load_job
from mlcl.config.space.condition import covers, setting_of
from mlcl.config.space.entry import Entry
from mlcl.config.space.keys import POSTHOC, matches, nodes
from mlcl.config.space.space import Parameter
from mlcl.errors import UserError


@dataclass(frozen=True)
class Found:
    """A parameter, the entry that it comes from, and the texts that the entry's `*` matched."""

    parameter: Parameter
    entry: Entry
    stars: tuple[str, ...] = ()


def known_keys(entries: Sequence[Entry], tree: Mapping[str, Any]) -> list[str]:
    """The keys of the job, and those that it has only where a choice gives it another section."""
    known = list(nodes(tree))
    return list(dict.fromkeys([*known, *_keys_of_choices(entries, known, tree)]))


def _keys_of_choices(
    entries: Sequence[Entry], known: Sequence[str], tree: Mapping[str, Any]
) -> Iterator[str]:
    for entry in entries:
        if entry.sections:
            for key in matches(entry.place, entry.pattern, known):
                for section in entry.sections:
                    yield from nodes(_resolved(tree, key, section), f"{key}.")


def _resolved(tree: Mapping[str, Any], key: str, value: Any) -> Any:
    """A value as the job resolves it: with the defaults of a section, and numbers of the key's type."""
    try:
        return setting_of(dump_job(load_job(tree, {key: value})), key, value)
    except UserError:
        return value  # it may be valid only with other settings; the corners decide


def split(entry: Entry, known: Sequence[str], tree: Mapping[str, Any]) -> tuple[list[Found], dict[str, Any]]:
    """What an entry adds to the space: parameters, and grids of post-hoc keys. Raises UserError."""
    keys = matches(entry.place, entry.pattern, [*known, *POSTHOC])
    posthoc = {POSTHOC[key]: entry.grid() for key in keys if key in POSTHOC}
    keys = {key: stars for key, stars in keys.items() if key not in POSTHOC}
    patterns = entry.shared_with()
    if patterns is None:
        return [Found(_parameter(entry, key, tree), entry, stars) for key, stars in keys.items()], posthoc
    shared = [key for pattern in patterns for key in matches(entry.place, pattern, known)]
    return [Found(Parameter(entry.pattern, entry.domain(*keys, *shared)), entry)], posthoc


def _parameter(entry: Entry, key: str, tree: Mapping[str, Any]) -> Parameter:
    """The parameter of one key."""
    domain = entry.domain(key).resolved(entry.place, lambda value: _resolved(tree, key, value))
    return Parameter(key, domain)


def check_overlap(found: Sequence[Found]) -> None:
    """No key is varied twice; within a section that is chosen whole, a key may be varied on its own."""
    seen: dict[str, Parameter] = {}
    for each in found:
        for key in each.parameter.keys:
            if key in seen:
                raise each.entry.place.error("is varied twice", key)
            seen[key] = each.parameter
    for each in found:
        for key in each.parameter.keys:
            around = (seen[outer].domain for outer in seen if outer != key and covers(outer, key))
            if not all(domain.listed for domain in around):
                raise each.entry.place.error("is varied twice", key)
