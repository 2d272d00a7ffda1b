"""`mlcl submit`, `list`, `status`, `logs`, `stop`, `resume`: commands as jobs on a cluster."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from mlcl.cli.output import DEFAULT_HOME, Exit, Home, Json, errors, print_json, print_tree, results, say
from mlcl.cli.service import print_service_status
from mlcl.config.cluster import ClusterConfig, load_cluster
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.service.jobs import JobsClient, JobView

SERVICE = Path("service") / "cluster.yaml"
"""Under the home folder: the cluster file that `mlcl up` writes."""
EXITS = {"FAILED": Exit.FAILED, "REFUSED": Exit.BAD_INPUT, "BUDGET": Exit.BUDGET, "STOPPED": Exit.STOPPED}
STOP_WAIT = 120.0
"""Seconds that `mlcl stop` waits for a job's checkpoint and end."""
MORE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""What is no option of `mlcl resume` is one of the command that goes on."""
WORDS = MORE | {"allow_interspersed_args": False}
"""From the submitted command on, every word is its own."""

ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", envvar="MLCL_CLUSTER", help="Cluster file; default: the one of `mlcl up`."),
]
Id = Annotated[str, typer.Argument(help="The id that `mlcl submit` printed.")]


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
    from mlcl.cli.submitted import SUBMITTABLE, check_words, with_share
    from mlcl.service.jobs import submit as hand_in

    config, file = _cluster(cluster, home)
    words = context.args
    if not words or words[0] not in SUBMITTABLE:
        raise UserError("not a command to submit", found=words[0] if words else "none", allowed=SUBMITTABLE)
    needed = check_words(words, config.working_dir.root)
    words = with_share(words, config.trial)
    if dry_run:
        print_tree(_plan(config, words, needed), as_json=json)
        return
    client = _client(config, file)
    name = hand_in(client, config, file, words, home=home, needed=needed, id=id)
    if json:
        print_json({"id": name, "cluster": config.ray.address, "command": words})
    else:
        typer.echo(name)
        say(f"mlcl logs -f {name}   mlcl status {name}   mlcl stop {name}")
    if follow:
        _follow(client, name)


def list_jobs(cluster: ClusterFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """The jobs of a cluster, the latest first."""
    config, file = _cluster(cluster, home)
    views = _client(config, file).jobs()
    if json:
        print_json({"cluster": config.ray.address, "jobs": [_tree(view) for view in views]})
        return
    table = Table("id", "state", "command", "started (UTC)", "took", "attempts")
    for view in views:
        command = escape(shlex.join(view.command))
        table.add_row(view.id, view.state, command, _time(view.started), _took(view), str(view.attempts))
    results.print(table)


def status(
    id: Annotated[str | None, typer.Argument(help="A job's id; default: the service of `mlcl up`.")] = None,
    cluster: ClusterFile = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """A job, or the service on this machine. Exit status 0 where all is well, else that of the state."""
    if id is None:
        raise typer.Exit(print_service_status(home, as_json=json))
    config, file = _cluster(cluster, home)
    view = _client(config, file).get(id)
    if json:
        print_json({"cluster": config.ray.address, **_tree(view)})
    else:
        rows = {
            "id": view.id,
            "state": view.state,
            "command": f"mlcl {shlex.join(view.command)}",
            "cluster": config.ray.address,
            "started": f"{_time(view.started)} UTC",
            "took": _took(view),
            "attempts": str(view.attempts),
            "results": f"{config.storage} on the cluster, tag mlcl.job = {view.id} in MLflow",
        }
        for name, text in rows.items():
            typer.echo(f"{name:9} {text}")
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
    client = _client(*_cluster(cluster, home))
    if follow:
        _follow(client, id)
    else:
        typer.echo(client.logs(client.get(id)), nl=False)


def stop(id: Id, cluster: ClusterFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Stop a job: it writes a checkpoint and its state first."""
    client = _client(*_cluster(cluster, home))
    view = client.get(id)
    if view.going:
        client.stop(view)
        say("stopping: a checkpoint is written")
        view = client.ended(id, STOP_WAIT)
    else:
        say(f"it does not run: {view.state}")
    if json:
        print_json(_tree(view))
    else:
        typer.echo(f"{view.id} {view.state}")
    if view.going:
        raise typer.Exit(Exit.FAILED)


def resume(
    context: typer.Context,
    id: Id,
    cluster: ClusterFile = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Go on with a job that was stopped, failed or killed; further options are added: --trials 64."""
    from mlcl.cli.submitted import check_words
    from mlcl.service.jobs import resume as hand_in_again

    config, file = _cluster(cluster, home)
    client = _client(config, file)
    attempt = hand_in_again(client, config, file, id, context.args, home=home, check=check_words)
    if json:
        print_json({"id": id, "attempt": attempt, "cluster": config.ray.address})
    else:
        typer.echo(id)


def _cluster(given: Path | None, home: Path) -> tuple[ClusterConfig, Path]:
    file = given or home / SERVICE
    if given is None and not file.is_file():
        allowed = "--cluster FILE, or `mlcl up` for one on this machine"
        raise UserError("no cluster is named", key="--cluster", found="none", allowed=allowed)
    return load_cluster(file), file


def _client(config: ClusterConfig, file: Path) -> JobsClient:
    from mlcl.service.jobs import JobsClient

    return JobsClient(config, file)


def _plan(config: ClusterConfig, words: list[str], needed: list[Path]) -> Mapping[str, Any]:
    """What would be sent where, for a look before it is."""
    import tempfile

    from mlcl.service.jobs.package import files_of, stage
    from mlcl.service.jobs.submit import entrypoint, runtime_env

    with tempfile.TemporaryDirectory(prefix="mlcl-") as scratch:
        stage(config.working_dir, Path(scratch), needed)
    root = config.working_dir.root
    files = files_of(root, config.working_dir.exclude)
    return {
        "cluster": config.ray.address,
        "command": entrypoint(config, words),
        "variables": runtime_env(config, "ID", root)["env_vars"],
        "working_dir": {
            "path": str(root),
            "files": len(files),
            "mib": round(sum((root / name).stat().st_size for name in files) / 2**20, 2),
        },
    }


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


def _tree(view: JobView) -> dict[str, Any]:
    return {name: value for name, value in asdict(view).items() if name != "metadata"}


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _took(view: JobView) -> str:
    if view.started is None:
        return "-"
    end = view.ended or datetime.now(UTC).timestamp()
    minutes, seconds = divmod(round(end - view.started), 60)
    return f"{minutes}m{seconds:02d}s"
