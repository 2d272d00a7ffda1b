"""Checks Ray's file with the address of this machine's cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.tracking.network import connection_error


def find_stale_address(_scope: Scope) -> Iterator[Finding]:
    """The file, where no cluster answers at its address: programs would wait for that cluster."""
    from ray._common.utils import get_ray_address_file  # the path as Ray computes it

    path = Path(get_ray_address_file(None))
    reason = _stale(path)
    if reason:
        yield Finding(str(path), reason, "removed", partial(_remove, path))


def _stale(path: Path) -> str:
    """Why the file is stale; empty where it is not, or does not exist."""
    try:
        address = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return f"names no address: {address[:100]!r}"
    reason = connection_error(host, int(port))
    return f"names the Ray cluster {address}, which does not answer ({reason})" if reason else ""


def _remove(path: Path) -> None:
    # A cluster may have been started since.
    if _stale(path):
        path.unlink(missing_ok=True)
