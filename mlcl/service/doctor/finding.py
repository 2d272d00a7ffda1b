"""The input and the output of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Scope:
    """A home and its tracking store, which the doctor checks."""

    home: Path
    uri: str
    announce: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Finding:
    """A problem: the path, run or address that has it (`what`), the reason, and the cure.

    `mend` applies the cure, or is None where only a person can; findings with one cure share it. A `note` is
    information and no problem.
    """

    what: str
    why: str
    cure: str
    mend: Callable[[], None] | None = None
    note: bool = False


@dataclass(frozen=True)
class Check:
    """A check by name. `find` changes nothing on the disk."""

    name: str
    find: Callable[[Scope], Iterable[Finding]]
