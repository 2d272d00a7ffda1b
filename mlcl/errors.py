"""The error for wrong input. This module imports no other, so that every layer may raise the error."""

import difflib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any


class UserError(Exception):
    """The error for wrong input, described in one line: file, key, problem, found value, allowed values.

    The command line prints the line and exits with status 2. The error is raised before anything is started
    or written.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        found: object = None,
        allowed: object = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.key = key
        self.found = found
        self.allowed = allowed
        super().__init__(self.line())

    def __reduce__(self) -> tuple[object, ...]:
        # Ray pickles exceptions, and by default pickle drops keyword arguments.
        return partial(UserError, **self._fields()), ()

    def line(self) -> str:
        """Returns the error on one line, in the order file, key, problem, found, allowed."""
        location = ", ".join(part for part in (self.file, f"key {self.key}" if self.key else None) if part)
        text = f"{location}: {self.problem}" if location else self.problem
        if self.found is not None:
            text += f"; found: {_shorten(self.found)}"
        if self.allowed is not None:
            text += f"; allowed: {_shorten(self.allowed)}"
        return escape_unprintable(" ".join(text.split()))

    def as_dict(self) -> dict[str, str | None]:
        """Returns the parts of the error as a dict for JSON."""
        return {name: None if value is None else _shorten(value) for name, value in self._fields().items()}

    def with_fields(self, **parts: Any) -> "UserError":
        """Returns a copy of the error with other parts, such as `key` or `file`."""
        return UserError(**{**self._fields(), **parts})

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("problem", "file", "key", "found", "allowed")}


class MachineError(Exception):
    """A fault of the machine, in one line. The command line prints it and exits with status 3."""


def _shorten(value: object, limit: int = 300) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        value = ", ".join(str(item) or "''" for item in value) or "nothing"
    text = str(value) or "''"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def escape_unprintable(text: str) -> str:
    """Returns the text with unprintable characters escaped: a terminal could take them for commands."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns the end of an error line that suggests the most similar of `names`; empty if none is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
