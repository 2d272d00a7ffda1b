"""Where in a space file something stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlcl.errors import UserError


@dataclass(frozen=True)
class Place:
    """A key of a space file, to which its errors belong."""

    file: str | Path
    key: str

    def error(self, problem: str, found: object = None, allowed: object = None) -> UserError:
        """The error at this place."""
        return UserError(problem, file=self.file, key=self.key, found=found, allowed=allowed)
