"""`mlcl submit`, `list`, `status`, `logs`, `stop`, `resume`: commands as jobs on a cluster."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Container, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Column, Exit, errors, fitted_table, print_json, print_tree, results, say
from mlcl.cli.service import print_service_status
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
EXITS = {"FAILED": Exit.FAILED, "REFUSED": Exit.BAD_INPUT, "BUDGET": Exit.BUDGET, "STOPPED": Exit.STOPPED}
STOP_WAIT = 120.0
"""Seconds that `mlcl stop` waits for a job's checkpoint and end."""
MORE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options that `mlcl resume` does not know are those of the command that it resumes."""
WORDS = MORE | {"allow_interspersed_args": False}
"""All words behind the submitted command belong to it."""

Id = Annotated[str, typer.Argument(help="The id that `mlcl submit` printed.")]
Force = Annotated[bool, typer.Option("--force", help="Also a job that another user submitted.")]


def submit(
    context: typer.Context,
    cluster: ClusterFile = None,
    id: Annotated[str | None, typer.Option("--id", help="An id of your own; it must be new.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what it prints until it ends.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check, and list what would be sent.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run a command on a cluster: mlcl submit [OPTIONS] run|sweep|reproduce ARGUMENTS."""
    from mlcl.cli.submit_checks import check_words, submission_plan, with_share
    from mlcl.service.jobs import submit as submit_job

    config, file = cluster_of(cluster, home)
    words = context.args
    needed = check_words(_app(context), words, config.working_dir.root)
    words = with_share(words, config.trial)
    if dry_run:
        print_tree(submission_plan(config, words, needed), as_json=json)
        return
    client = client_of(config, file)
    name = submit_job(client, config, file, words, home=home, needed=needed, id=id)
    if json:
        print_json({"id": name, "cluster": config.ray.address, "command": words})
    else:
        typer.echo(name)
        say(f"mlcl logs -f {name}   mlcl status {name}   mlcl stop {name}")
    if follow:
        _follow(client, name)


def list_runs(cluster: ClusterFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """The runs, sweeps and tables of the home, and the jobs of the cluster where one is named."""
    from mlcl.cli.local_runs import local_runs

    local = local_runs(home)
    tree: dict[str, Any] = {"runs": [asdict(its) for its in local]}
    views = []
    if cluster is not None or (home / SERVICE).is_file():
        config, file = cluster_of(cluster, home)
        views = client_of(config, file).jobs()
        say_forgotten({view.id for view in views}, file, home)
        tree |= {"cluster": config.ray.address, "jobs": [job_tree(view) for view in views]}
    if json:
        print_json(tree)
        return
    columns = [
        Column("name", [its.name for its in local], texts=True),
        Column("kind", [its.kind for its in local], rank=2),
        Column("state", [its.state for its in local]),
        Column("best", [its.best for its in local], rank=3),
        Column("age", [its.age for its in local], rank=1),
    ]
    if local:
        results.print(fitted_table(columns))
    elif "jobs" not in tree:
        say(f"nothing was run in {home} yet")
    if "jobs" in tree:
        results.print(jobs_table(views))


def status(
    id: Annotated[str | None, typer.Argument(help="A job's id; default: the service of `mlcl up`.")] = None,
    cluster: ClusterFile = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """A job, or the service on this machine. Exit status 0 where all is well, else that of the state."""
    if id is None:
        raise typer.Exit(print_service_status(home, as_json=json))
    config, file = cluster_of(cluster, home)
    view = job_of(client_of(config, file), id, home)
    if json:
        print_json({"cluster": config.ray.address, **job_tree(view)})
    else:
        typer.echo("\n".join(job_lines(view, config)))
        if view.state in EXITS and view.message:
            errors.print(view.message, style="red", markup=False)
    raise typer.Exit(EXITS.get(view.state, Exit.DONE))


def logs(
    id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    cluster: ClusterFile = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Print the output of a job. Ctrl-C ends the printing, not the job."""
    client = client_of(*cluster_of(cluster, home))
    view = job_of(client, id, home)
    if follow:
        _follow(client, id)
    else:
        typer.echo(client.logs(view), nl=False)


def stop(
    id: Id,
    cluster: ClusterFile = None,
    force: Force = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Stop a job: it writes a checkpoint and its state first."""
    from mlcl.service.jobs.client import check_owner

    client = client_of(*cluster_of(cluster, home))
    view = job_of(client, id, home)
    check_owner(id, view.user, force=force)
    if view.is_active:
        client.stop(view)
        say("stopping: a checkpoint is written")
        view = client.ended(id, STOP_WAIT)
    else:
        say(f"it does not run: {view.state}")
    if json:
        print_json(job_tree(view))
    else:
        typer.echo(f"{view.id} {view.state}")
    if view.is_active:
        raise typer.Exit(Exit.FAILED)


def resume(
    context: typer.Context,
    id: Id,
    cluster: ClusterFile = None,
    force: Force = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Go on with a job that was stopped, failed or killed; further options are added: --trials 64."""
    from mlcl.cli.submit_checks import check_words
    from mlcl.service.jobs import resume as resume_job

    config, file = cluster_of(cluster, home)
    client = client_of(config, file)
    check = partial(check_words, _app(context))
    attempt = resume_job(client, config, file, id, context.args, home=home, check=check, force=force)
    if json:
        print_json({"id": id, "attempt": attempt, "cluster": config.ray.address})
    else:
        typer.echo(id)


def _app(context: typer.Context) -> TyperGroup:
    """The command line itself, which parses the submitted command, too."""
    app = context.find_root().command
    assert isinstance(app, TyperGroup)
    return app


def _follow(client: JobsClient, id: str) -> None:
    async def tail() -> None:
        async for lines in client.follow(client.get(id)):
            typer.echo(lines, nl=False)

    try:
        asyncio.run(tail())
    except KeyboardInterrupt:
        say(f"the job goes on: mlcl logs -f {id}, mlcl stop {id}")
        raise typer.Exit(Exit.DONE) from None
    view = client.ended(id, STOP_WAIT)
    say(f"{view.id} {view.state}")
    raise typer.Exit(EXITS.get(view.state, Exit.DONE))


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
