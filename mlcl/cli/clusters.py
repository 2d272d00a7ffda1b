"""Finds the cluster of a command, and its jobs."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
