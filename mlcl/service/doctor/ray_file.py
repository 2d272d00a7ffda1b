"""Ray's note of which cluster runs on this machine, where that cluster is gone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.network import refused


def find_stale_ray(_scope: Scope) -> Iterator[Finding]:
    """Programs that look for a cluster would wait for one that no longer answers."""
    from ray._common.utils import get_ray_address_file  # Ray's own word for where it lies

    path = Path(get_ray_address_file(None))
    reason = _stale(path)
    if reason:
        yield Finding(str(path), reason, "removed", partial(_remove, path))


def _stale(path: Path) -> str:
    """Why the file is of no use; empty where it is, or is not there."""
    try:
        address = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return f"names no address: {address[:100]!r}"
    reason = refused(host, int(port))
    return f"names the Ray cluster {address}, which does not answer ({reason})" if reason else ""


def _remove(path: Path) -> None:
    # A cluster may have been started since.
    if _stale(path):
        path.unlink(missing_ok=True)
