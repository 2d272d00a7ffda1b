"""The folder of Ray's files, which has sockets: Linux limits the length of their paths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from mlcl.errors import UserError

MAX_SOCKET = 107
"""Bytes in the path of a socket, by Linux."""
SOCKET = "/session_2000-01-01_00-00-00_000000_0000000/sockets/plasma_store"
"""How long the end of the longest of Ray's sockets is."""
SHORT = Path("/tmp/ray")
"""Where Ray's files lie if their usual place is too long."""


def short_folder(usual: str, announce: Callable[[str], None]) -> str | None:
    """Where Ray's files go instead of `usual`; None where `usual` is short enough.

    Raises UserError where no path is short enough.
    """
    if len(os.fsencode(usual + SOCKET)) <= MAX_SOCKET:
        return None
    place, name = os.path.split(usual)
    try:
        SHORT.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=SHORT).close()
    except OSError:
        raise UserError(
            f"too long for the sockets of Ray, and {SHORT} cannot be written",
            key="RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR",
            found=place,
            allowed=f"{MAX_SOCKET - len(f'/{name}{SOCKET}')} characters",
        ) from None
    announce(f"{place} is too long for Ray's sockets: its files are in {SHORT}")
    return str(SHORT)
