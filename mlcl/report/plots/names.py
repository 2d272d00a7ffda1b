"""Short names of a job's keys, for axes."""

from __future__ import annotations

_PREFIXES = ("objective.heads.", "objective.")


def short(key: str) -> str:
    """The key without a prefix of the objective: `section.temperature`, `classifier.weight`, `train.lr`."""
    for prefix in _PREFIXES:
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


def head_key(key: str, option: str) -> str | None:
    """The name of the head where the key is that option of a head; otherwise None."""
    prefix, suffix = _PREFIXES[0], f".{option}"
    name = key.removeprefix(prefix).removesuffix(suffix)
    return name if key == f"{prefix}{name}{suffix}" and "." not in name else None
