"""`mlcl submit`, `list`, `status`, `logs`, `stop`, `resume`: commands as jobs on a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlcl.cli.cluster_jobs import (
    SERVICE,
    ClusterFile,
    client_of,
    cluster_of,
    job_lines,
    job_of,
    job_tree,
    jobs_table,
    say_forgotten,
)
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Column, Exit, errors, fitted_table, print_json, print_tree, results, say
from mlcl.cli.service import print_service_status
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.service.jobs import JobsClient

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
    from mlcl.cli.submit_checks import SUBMITTABLE, check_words, submission_plan, with_share
    from mlcl.service.jobs import submit as submit_job

    config, file = cluster_of(cluster, home)
    words = context.args
    if not words or words[0] not in SUBMITTABLE:
        raise UserError("not a command to submit", found=words[0] if words else "none", allowed=SUBMITTABLE)
    needed = check_words(words, config.working_dir.root)
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
    """What a job has printed. Ctrl-C ends the watching, not the job."""
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
    from mlcl.service.jobs.owner import check_owner

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
    attempt = resume_job(client, config, file, id, context.args, home=home, check=check_words, force=force)
    if json:
        print_json({"id": id, "attempt": attempt, "cluster": config.ray.address})
    else:
        typer.echo(id)


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
