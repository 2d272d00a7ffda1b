"""The jobs of a cluster: how a command finds them, and prints them as a table, as lines or as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mlcl.cli.output import say
from mlcl.config.cluster import ClusterConfig, load_cluster
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.service.jobs import JobsClient, JobView

SERVICE = Path("service") / "cluster.yaml"
"""The cluster file that `mlcl up` writes under the home."""

ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", envvar="MLCL_CLUSTER", help="Cluster file; default: the one of `mlcl up`."),
]


def cluster_of(given: Path | None, home: Path) -> tuple[ClusterConfig, Path]:
    """The configuration of the cluster and its file. Raises UserError where none is named."""
    file = given or home / SERVICE
    if given is None and not file.is_file():
        allowed = "--cluster FILE, or `mlcl up` for one on this machine"
        raise UserError("no cluster is named", key="--cluster", found="none", allowed=allowed)
    return load_cluster(file), file


def client_of(config: ClusterConfig, file: Path) -> JobsClient:
    """A client of the cluster's jobs. Raises UserError where it does not answer."""
    from mlcl.service.jobs import JobsClient

    return JobsClient(config, file)


def job_of(client: JobsClient, id: str, home: Path) -> JobView:
    """The job of an id. Raises UserError where the cluster does not know it, or no longer."""
    from mlcl.service.jobs import known_submissions

    view = client.find(id)
    if view is None and id in known_submissions(home):
        problem = "the cluster has forgotten this job: its head was started anew"
        raise UserError(problem, key="ID", found=id, allowed=f"mlcl resume {id}")
    return view or client.get(id)


def say_forgotten(known: Container[str], file: Path, home: Path) -> None:
    """Prints the jobs that were submitted from here to this cluster and are not known to it."""
    from mlcl.service.jobs import known_submissions

    of_it = [id for id, its in known_submissions(home).items() if its.cluster == str(file.resolve())]
    lost = [id for id in of_it if id not in known]
    if lost:
        say(f"forgotten by the cluster: {', '.join(lost)}; mlcl resume ID goes on")


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
