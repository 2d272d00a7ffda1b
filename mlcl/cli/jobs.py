"""`mlcl submit`, `status`, `logs`, `stop` and `resume`: run commands as jobs on a cluster."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from mlcl.cli.cluster_check import Slices, cluster_check_words
from mlcl.cli.options import DEFAULT_HOME, Home, Json, check_control, is_typed
from mlcl.cli.output import EXIT_OF, Exit, answer, boxed_table, errors, print_tree, say
from mlcl.cli.service import print_service_status
from mlcl.config.cluster import ClusterConfig, load_cluster
from mlcl.errors import UserError, escape_unprintable

if TYPE_CHECKING:
    from mlcl.service.jobs import JobsClient, JobView

SERVICE = Path("service") / "cluster.yaml"
"""The path of the cluster file that `mlcl up` writes, relative to the home."""

ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", envvar="MLCL_CLUSTER", help="Cluster file; default: the one of `mlcl up`."),
]
HERE = ("home", "dry_run", "print_config")
"""The options that a submitted command may not have."""
STOP_WAIT = 120.0
"""The number of seconds that `mlcl stop` waits until the job has written a checkpoint and has ended."""
MORE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of the parser of `mlcl resume`, by which unknown options belong to the resumed command."""
WORDS = MORE | {"allow_interspersed_args": False}
"""Settings of the parser of `mlcl submit`, by which all words after the submitted command belong to it."""


class SubmitCommand(TyperCommand):
    """The command `submit`. Its options, except `--json`, may also follow the submitted command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves the options of `submit` to the front, where the parser expects them."""
        takes_value = {
            name: not getattr(option, "is_flag", False)
            for option in self.params
            for name in option.opts
            if name != "--json"
        }
        return super().parse_args(ctx, _move_options_first(args, takes_value))


def _move_options_first(words: Sequence[str], takes_value: Mapping[str, bool]) -> list[str]:
    """Returns the words with the options in `takes_value`, and their values, before all others."""
    options, other_words, iterator = list[str](), list[str](), iter(words)
    for word in iterator:
        name, separator, _ = word.partition("=")
        if name not in takes_value:
            other_words.append(word)
            continue
        options.append(word)
        if takes_value[name] and not separator:
            options += islice(iterator, 1)
    return [*options, *other_words]


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
    check: Annotated[
        bool, typer.Option("--check", help="Instead: measure every node of the cluster.")
    ] = False,
    slices: Slices = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run a command on a cluster: mlcl submit run|baseline|sweep|reproduce ARGUMENTS."""
    from mlcl.service.command_checks import with_share
    from mlcl.service.jobs import submit as submit_job
    from mlcl.store import home_option

    client = client_of(cluster, home)
    if check:
        words = cluster_check_words(context.args, slices or [], client.cluster, as_json=json)
        needed_files = list[Path]()
    else:
        needed_files = check_words(_root_app(context), context.args, client.cluster.working_dir.root)
        words = with_share(context.args, client.cluster.trial)
    if dry_run:
        print_tree(_submission_plan(client.cluster, words, needed_files), as_json=json)
        return
    name = submit_job(client, words, home=home, required_files=needed_files, id=id)
    if check:
        _follow(client, name)
    answer({"id": name, "cluster": client.cluster.ray.address, "command": words}, name, as_json=json)
    if not json:
        typed = is_typed(context, "cluster")
        flag = f" --cluster {shlex.quote(str(cluster))}" if typed else home_option(home)
        say("   ".join(f"mlcl {command} {name}{flag}" for command in ("logs -f", "status", "stop")))
    if follow:
        _follow(client, name)


def status(
    id: Annotated[str | None, typer.Argument(help="A job's id; default: the service of `mlcl up`.")] = None,
    cluster: ClusterFile = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Show a job, or the service on this machine. The exit status is 0 if all is well, else by the state."""
    if id is None:
        raise typer.Exit(print_service_status(home, as_json=json))
    client = client_of(cluster, home)
    view = _find_job(client, id, home)
    exit = EXIT_OF.get(view.state, Exit.DONE)
    lines = (escape_unprintable(f"{name:9} {text}") for name, text in _describe_job(view, client).items())
    answer({"cluster": client.cluster.ray.address, **job_tree(view)}, *lines, as_json=json)
    if exit and view.message and not json:
        errors.print("\n".join(map(escape_unprintable, view.message.splitlines())), style="red", markup=False)
    raise typer.Exit(exit)


def logs(
    id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    cluster: ClusterFile = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Print the output of a job. Ctrl-C ends the printing, not the job."""
    client = client_of(cluster, home)
    view = _find_job(client, id, home)
    if follow:
        _follow(client, id)
    else:
        typer.echo(client.logs(view), nl=False)


def stop(
    id: Id, cluster: ClusterFile = None, force: Force = False, json: Json = False, home: Home = DEFAULT_HOME
) -> None:
    """Stop a job, which first writes a checkpoint and its state."""
    from mlcl.service.jobs.client import check_owner

    client = client_of(cluster, home)
    view = _find_job(client, id, home)
    check_owner(id, view.user, force=force)
    if view.is_active:
        client.stop(view)
        say("stopping: a checkpoint is written")
        view = client.wait_until_ended(id, STOP_WAIT)
    else:
        say(f"it is not running: {view.state}")
    answer(job_tree(view), f"{view.id} {view.state}", as_json=json)
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
    """Resume a job that was stopped, failed or killed. Further options are added, such as --trials 64."""
    from mlcl.service.jobs import resume as resume_job

    client = client_of(cluster, home)
    check = partial(check_words, _root_app(context))
    attempt = resume_job(client, id, context.args, home=home, check=check, force=force)
    answer({"id": id, "attempt": attempt, "cluster": client.cluster.ray.address}, id, as_json=json)


def _root_app(context: typer.Context) -> TyperGroup:
    """Returns the command line `mlcl`, which also parses the submitted command."""
    app = context.find_root().command
    assert isinstance(app, TyperGroup)
    return app


def check_words(
    app: TyperGroup, words: Sequence[str], folder: Path, files: Mapping[str, str] | None = None
) -> list[Path]:
    """Checks a command of `app`, its options and its files; returns files to upload, see `check_command`."""
    from mlcl.service.command_checks import SUBMITTABLE, check_command

    name = words[0] if words else "none"
    context: Any = None
    if name in SUBMITTABLE:
        context = app.commands[name].make_context(name, list(words[1:]))
        for option in HERE:
            if is_typed(context, option):
                key = f"--{option.replace('_', '-')}"
                raise UserError("not for a submitted command", key=key, found=name)
        if name == "sweep":
            check_control(context.params["control"], no_control=context.params["no_control"])
    return check_command(name, context.params if context else {}, folder, files)


def _submission_plan(config: ClusterConfig, words: list[str], needed_files: list[Path]) -> Mapping[str, Any]:
    from mlcl.service.jobs.package import stage, upload_files
    from mlcl.service.jobs.submit import entrypoint, runtime_env

    with TemporaryDirectory(prefix="mlcl-") as scratch:
        stage(config.working_dir, Path(scratch), needed_files)
    root = config.working_dir.root
    files = upload_files(root, config.working_dir.exclude)
    size = sum((root / name).stat().st_size for name in files)
    return {
        "cluster": config.ray.address,
        "command": entrypoint(config, words),
        "variables": runtime_env(config, "ID", root)["env_vars"],
        "working_dir": {"path": str(root), "files": len(files), "mib": round(size / 2**20, 2)},
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
    view = client.wait_until_ended(id, STOP_WAIT)
    say(f"{view.id} {view.state}")
    raise typer.Exit(EXIT_OF.get(view.state, Exit.DONE))


def client_of(cluster_file: Path | None, home: Path) -> JobsClient:
    """Returns a client of the given cluster or of the local service. Raises UserError if there is neither."""
    from mlcl.service.jobs import JobsClient

    file = cluster_file or home / SERVICE
    if cluster_file is None and not file.is_file():
        allowed = "--cluster FILE, or `mlcl up` for one on this machine"
        raise UserError("no cluster is named", key="--cluster", found="none", allowed=allowed)
    return JobsClient(load_cluster(file), file)


def _find_job(client: JobsClient, id: str, home: Path) -> JobView:
    """Returns the job with this id. Raises UserError if the cluster does not know it or has forgotten it."""
    from mlcl.service.jobs import known_submissions

    view = client.find(id)
    if view is None and id in known_submissions(home):
        problem = "the cluster has forgotten this job: its head was started anew"
        raise UserError(problem, key="ID", found=id, allowed=f"mlcl resume {id}")
    return view or client.get(id)


def known_jobs(client: JobsClient, home: Path) -> list[JobView]:
    """Returns the jobs of the cluster. Prints the ids of this home's jobs that the cluster has forgotten."""
    from mlcl.service.jobs import known_submissions

    views, cluster = client.jobs(), str(client.file.resolve())
    submitted_ids = [
        id for id, submission in known_submissions(home).items() if submission.cluster == cluster
    ]
    lost_ids = [id for id in submitted_ids if id not in {view.id for view in views}]
    if lost_ids:
        say(f"no longer known to the cluster: {', '.join(lost_ids)}; mlcl resume ID goes on")
    return views


def jobs_table(views: Iterable[JobView]) -> Table:
    """Returns a table with a row for each job."""
    heads = ("id", "state", "command", "user", "started (UTC)", "took", "attempts")
    rows = (
        (
            view.id,
            view.state,
            shlex.join(view.command),
            view.user,
            _format_time(view.started),
            _format_duration(view),
            str(view.attempts),
        )
        for view in views
    )
    return boxed_table(heads, (map(escape_unprintable, row) for row in rows))


def _describe_job(view: JobView, client: JobsClient) -> dict[str, object]:
    return {
        "id": view.id,
        "state": view.state,
        "command": f"mlcl {shlex.join(view.command)}",
        "user": view.user,
        "cluster": client.cluster.ray.address,
        "started": f"{_format_time(view.started)} UTC",
        "took": _format_duration(view),
        "attempts": view.attempts,
        "results": f"{client.cluster.storage} on the cluster, tag mlcl.job = {view.id} in MLflow",
    }


def job_tree(view: JobView) -> dict[str, Any]:
    """Returns a job as a dict for JSON, without its metadata."""
    return {name: value for name, value in asdict(view).items() if name not in ("metadata", "accepted")}


def _format_time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"


def _format_duration(view: JobView) -> str:
    if view.started is None:
        return "-"
    end = view.ended or datetime.now(timezone.utc).timestamp()
    minutes, seconds = divmod(round(end - view.started), 60)
    return f"{minutes}m{seconds:02d}s"
