"""The one error that a user can cause and mend. Imports nothing, so that every layer may raise it."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Bad input, told in one line: which file, which key, what was found, what is allowed.

    The command line prints it and exits with status 2. Nothing has been started or written by then.
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
        # Ray carries exceptions between processes by pickle, which forgets keyword arguments.
        return (_rebuild, (self.problem, self.file, self.key, self.found, self.allowed))

    def line(self) -> str:
        """The whole error on one line, in the fixed order file, key, problem, found, allowed."""
        where = ", ".join(part for part in (self.file, f"key {self.key}" if self.key else None) if part)
        text = f"{where}: {self.problem}" if where else self.problem
        if self.found is not None:
            text += f"; found: {_short(self.found)}"
        if self.allowed is not None:
            text += f"; allowed: {_short(self.allowed)}"
        return printable(" ".join(text.split()))

    def as_dict(self) -> dict[str, str | None]:
        """The same for `--json`."""
        text = {name: getattr(self, name) for name in ("problem", "file", "key", "found", "allowed")}
        return {name: None if value is None else _short(value) for name, value in text.items()}


def _rebuild(problem: str, file: str | None, key: str | None, found: object, allowed: object) -> UserError:
    return UserError(problem, file=file, key=key, found=found, allowed=allowed)


def _short(value: object, limit: int = 300) -> str:
    text = (
        ", ".join(str(item) for item in value)
        if isinstance(value, (list, tuple, set, frozenset))
        else str(value)
    )
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str) -> str:
    """The text with what is no printable character written as its escape: a terminal would obey it."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The closest of `names` to a mistyped `name`, or None where nothing is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return close[0] if close else None
