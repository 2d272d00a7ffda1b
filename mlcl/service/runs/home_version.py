"""The version of a home's layout, so that an older mlcl never writes into what it does not know."""

from __future__ import annotations

import json
from pathlib import Path

from mlcl.errors import UserError
from mlcl.files import locked, remove_partial, replace_text

FORMAT = 3
"""The layout that this release writes. A home without a version is of release 0.1, and is taken over."""
FILE, LOCK = "home.json", ".home.lock"


def check_home(home: Path) -> None:
    """Raises UserError for a home that a later release has written to."""
    found = _version(home)
    if found > FORMAT:
        raise UserError(
            "this home was written by a later mlcl",
            file=home / FILE,
            key="format",
            found=found,
            allowed=f"{FORMAT} or less: install the mlcl that wrote it, or give another --home",
        )


def mark_home(home: Path) -> None:
    """Checks the version and writes it down where there is none."""
    check_home(home)
    if _version(home) < FORMAT:
        home.mkdir(parents=True, exist_ok=True)
        with locked(home / LOCK) as mine:
            if mine:  # else another command writes the same
                remove_partial(home, FILE)
                replace_text(home / FILE, json.dumps({"format": FORMAT}) + "\n")


def _version(home: Path) -> int:
    try:
        return int(json.loads((home / FILE).read_text())["format"])
    except FileNotFoundError:
        return 1
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            "the version of this home cannot be read",
            file=home / FILE,
            found=f"{type(error).__name__}: {error}",
            allowed="no such file, where no later mlcl has written here",
        ) from None
