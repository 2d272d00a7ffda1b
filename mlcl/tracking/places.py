"""The order in which the runs, sweeps and tables of a home were begun, which follows no clock."""

from __future__ import annotations

from pathlib import Path

from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder


def place_of(home: Path, log: str) -> int | None:
    """The place of what has this log among all of the home.

    0 for trainings of a sweep and for what an earlier release began, None where the home has no such log.
    """
    start = first_entry(log_folder(home, log) / LOG) if log else {}
    return int(start.get("place", 0)) if start else None


def latest_logs(home: Path) -> list[str]:
    """The logs of what has a place and is in no other one, the latest first."""
    starts = {path.parent.name: first_entry(path) for path in (home / "logs").glob(f"*/{LOG}")}
    places = {id: its["place"] for id, its in starts.items() if "place" in its and not its["parent"]}
    return sorted(places, key=lambda id: places[id], reverse=True)
