"""From `when` as written to a condition on keys that are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcl.config.space.condition import Condition, Term, covers, setting_of
from mlcl.config.space.entry import Entry
from mlcl.config.space.error_location import Place
from mlcl.config.space.keys import POSTHOC, bind, unknown_key
from mlcl.config.space.numbers import is_number
from mlcl.config.space.space import Parameter

BOUNDS = ("above", "below")


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
