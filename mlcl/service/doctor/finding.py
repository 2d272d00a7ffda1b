"""What a check looks at, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

Mend = Callable[[], None]


@dataclass(frozen=True)
class Scope:
    """What is examined: a home, its tracking store, and the Optuna storage that `--study` names."""

    home: Path
    uri: str
    study: str | None = None
    announce: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be: which path, run or address (`what`), why, and the cure.

    `mend` applies the cure; findings that are cured together share it. None: only a person can.
    A `note` is worth knowing, and nothing is wrong.
    """

    what: str
    why: str
    cure: str
    mend: Mend | None = None
    note: bool = False


@dataclass(frozen=True)
class Check:
    """One thing that is looked at. `find` changes nothing on the disk."""

    name: str
    find: Callable[[Scope], Iterable[Finding]]
