"""Prints jobs as a table, as lines or as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mlcl.config.cluster import ClusterConfig

if TYPE_CHECKING:
    from mlcl.service.jobs import JobView


def jobs_table(views: Iterable[JobView]) -> Table:
    """The table of jobs, a row for each."""
    table = Table("id", "state", "command", "user", "started (UTC)", "took", "attempts")
    for view in views:
        command, user = escape(shlex.join(view.command)), escape(view.user)
        started, took = _time(view.started), _took(view)
        table.add_row(view.id, view.state, command, user, started, took, str(view.attempts))
    return table


def job_lines(view: JobView, config: ClusterConfig) -> list[str]:
    """The lines that describe a job."""
    rows = {
        "id": view.id,
        "state": view.state,
        "command": f"mlcl {shlex.join(view.command)}",
        "user": view.user,
        "cluster": config.ray.address,
        "started": f"{_time(view.started)} UTC",
        "took": _took(view),
        "attempts": str(view.attempts),
        "results": f"{config.storage} on the cluster, tag mlcl.job = {view.id} in MLflow",
    }
    return [f"{name:9} {text}" for name, text in rows.items()]


def job_tree(view: JobView) -> dict[str, Any]:
    """A job as JSON."""
    return {name: value for name, value in asdict(view).items() if name != "metadata"}


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _took(view: JobView) -> str:
    if view.started is None:
        return "-"
    end = view.ended or datetime.now(UTC).timestamp()
    minutes, seconds = divmod(round(end - view.started), 60)
    return f"{minutes}m{seconds:02d}s"
