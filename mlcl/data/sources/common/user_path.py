"""A path as a user writes it in a job or on the command line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def at_home(path: Path) -> Path:
    """`path` with a leading `~` replaced by the user's home; as it is where there is no such user."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


UserPath = Annotated[Path, AfterValidator(at_home)]
