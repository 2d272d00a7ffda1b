"""The memory that this process may still take: what the machine has, or its control groups (v1, v2) leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

GROUPS = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that are available, without swap: Ray ends trainings where memory is used up, swap or not."""
    return min([psutil.virtual_memory().available, *_left()])


def _left() -> Iterator[int]:
    """What each limit leaves, of this process's groups and of those that they are in."""
    for root, path, v2 in _groups():
        group = root / path.lstrip("/")
        # In a container the path may be the host's: then the root alone is there.
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            try:
                yield _limit(folder, v2) - _used(folder, v2)
            except (OSError, ValueError, KeyError):
                continue  # no such group, or "max"


def _groups() -> Iterator[tuple[Path, str, bool]]:
    """The groups that count memory: the root of their tree, their path, and whether it is version 2."""
    try:
        lines = GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            yield ROOT, path, True
        elif "memory" in controllers.split(","):
            yield ROOT / "memory", path, False


def _limit(folder: Path, v2: bool) -> int:
    return int((folder / ("memory.max" if v2 else "memory.limit_in_bytes")).read_text())


def _used(folder: Path, v2: bool) -> int:
    """Without cached files, which the kernel gives up first."""
    used = int((folder / ("memory.current" if v2 else "memory.usage_in_bytes")).read_text())
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    prefix = "" if v2 else "total_"
    return used - int(stat[f"{prefix}active_file"]) - int(stat[f"{prefix}inactive_file"])
