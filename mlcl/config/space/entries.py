"""The entries of a space file: parameters with their conditions, and grids of post-hoc keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.job import dump_job
from mlcl.config.loader import load_job
from mlcl.config.space.condition import Condition, Term, covers, setting_of
from mlcl.config.space.domain import Domain
from mlcl.config.space.domains import KINDS
from mlcl.config.space.keys import POSTHOC, bind, matches, nodes, unknown_key
from mlcl.config.space.place import Place, is_number
from mlcl.config.space.space import Parameter
from mlcl.errors import UserError, did_you_mean

BOUNDS = ("above", "below")


@dataclass(frozen=True)
class Entry:
    """A pattern of keys, the kind of their domain, what stands beside it, and the condition as written."""

    place: Place
    pattern: str
    kind: str
    value: Any
    when: Any = None

    @classmethod
    def read(cls, file: str | Path, pattern: str, spec: Mapping[str, Any]) -> Entry:
        """The entry, of which the kind is checked. Raises UserError."""
        place = Place(file, f"space.{pattern}")
        kinds = [key for key in spec if key != "when"]
        if len(kinds) != 1:
            raise place.error("give exactly one kind", kinds, tuple(KINDS))
        kind = kinds[0]
        if kind not in KINDS:
            raise place.error(f"unknown kind{did_you_mean(kind, KINDS)}", kind, tuple(KINDS))
        if "when" in spec and (not isinstance(spec["when"], Mapping) or not spec["when"]):
            raise place.error("when needs a key and its values", spec["when"], "when: {key: [values]}")
        return cls(place, pattern, kind, spec[kind], spec.get("when"))

    def domain(self, *keys: str) -> Domain:
        """The domain of these keys. Raises UserError."""
        return KINDS[self.kind].read(self.place, self.kind, self.value, keys)

    def shared_with(self) -> tuple[str, ...] | None:
        """Patterns of the keys that share one parameter with the pattern's; None: each key has its own."""
        shared = KINDS[self.kind].shared_with(self.place, self.value)
        return None if shared is None else tuple(shared)

    @property
    def sections(self) -> list[Mapping[str, Any]]:
        """The values that are whole sections, where values are listed."""
        values = self.value if KINDS[self.kind].listed and isinstance(self.value, list) else []
        return [value for value in values if isinstance(value, Mapping)]

    def grid(self) -> tuple[Any, ...]:
        """The values at which a key that is answered after training is scored. Raises UserError."""
        problem = KINDS[self.kind].not_posthoc
        if problem is not None:
            allowed = tuple(kind for kind, domain in KINDS.items() if domain.not_posthoc is None)
            raise self.place.error(problem, self.kind, allowed)
        if self.when is not None:
            raise self.place.error(
                "has no condition: it is not drawn, every trial is scored at all its values", self.when
            )
        return self.domain(self.pattern).grid()


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


def read_condition(
    entry: Entry,
    stars: tuple[str, ...],
    drawn: Sequence[Parameter],
    known: Sequence[str],
    tree: Mapping[str, Any],
) -> Condition | None:
    """The condition of an entry's parameter; None where it has none, or the job alone settles that it holds.

    `stars` are the texts that the `*` of the pattern matched in the parameter's key. Raises UserError.
    """
    terms = []
    for pattern, wanted in (entry.when or {}).items():
        place = Place(entry.place.file, f"{entry.place.key}.when.{pattern}")
        key = bind(place, str(pattern), stars)
        own = setting_of(tree, key, None)
        if isinstance(own, Mapping):
            raise place.error("is a whole section", key, "a key in it")
        _check_key(place, key, drawn, known)
        term = _term(place, key, wanted, own)
        if any(covers(parameter.name, key) for parameter in drawn):
            terms.append(term)
        elif not term.holds({}):
            raise place.error("can never hold: the space does not vary this key", term.otherwise, wanted)
    return Condition(tuple(terms)) if terms else None


def _check_key(place: Place, key: str, drawn: Sequence[Parameter], known: Sequence[str]) -> None:
    if key in POSTHOC:
        raise place.error("is answered after training at all its values: no trial has one of them", key)
    if any(p.domain.joint and key in p.keys for p in drawn):
        raise place.error(
            "is drawn together with other weights of a simplex: it has no range of its own", key
        )
    if key not in known and all(key not in p.keys for p in drawn):
        raise unknown_key(place, key, known)


def _term(place: Place, key: str, wanted: Any, otherwise: Any) -> Term:
    if isinstance(wanted, Mapping):
        if not wanted or set(wanted) - set(BOUNDS) or not all(map(is_number, wanted.values())):
            raise place.error(
                "is no condition", dict(wanted), "a value, [values], {above: x}, {below: x} or both"
            )
        return Term(key, (), wanted.get("above"), wanted.get("below"), otherwise)
    values = tuple(wanted) if isinstance(wanted, list) else (wanted,)
    if not values:
        raise place.error("can never hold: it lists no value", wanted)
    return Term(key, values, otherwise=otherwise)
