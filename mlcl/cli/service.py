"""`mlcl up`, `mlcl down`, and `mlcl status` of the service: Ray and MLflow on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json, reject_typed_secrets
from mlcl.cli.output import Exit, print_json, say, say_failed

if TYPE_CHECKING:
    from mlcl.service.local.service import ServiceStatus, UpResult

TITLES = {"ray": "Ray", "mlflow": "MLflow"}

Store = Annotated[
    str | None,
    typer.Option(
        envvar="MLCL_STORE",
        callback=reject_typed_secrets,
        help="MLflow's database: sqlite, or postgresql+psycopg://USER@HOST/DB.",
    ),
]
Artifacts = Annotated[
    str | None,
    typer.Option(envvar="MLCL_ARTIFACTS", help="MLflow's artifacts: a folder, or s3://BUCKET/PATH."),
]


def up(
    store: Store = None,
    artifacts: Artifacts = None,
    ray_port: Annotated[int | None, typer.Option(help="Ray's port; default 6379.")] = None,
    dashboard_port: Annotated[
        int | None, typer.Option(help="Port of Ray's dashboard, which takes jobs; default 8265.")
    ] = None,
    mlflow_port: Annotated[int | None, typer.Option(help="MLflow's port; default 5000.")] = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Start the local service, a Ray head and an MLflow server for this machine, or what is missing of it."""
    from mlcl.service.local.service import ServiceError
    from mlcl.service.local.service import up as start_service
    from mlcl.service.local.settings import UpOptions

    options = UpOptions(ray_port, dashboard_port, mlflow_port, store, artifacts)
    try:
        started = start_service(options, home, announce=say)
    except ServiceError as error:
        raise typer.Exit(say_failed(str(error), as_json=json)) from None
    if json:
        print_json(_document(started))
    else:
        typer.echo("\n".join(_started_lines(started)))


def down(
    force: Annotated[bool, typer.Option("--force", help="Also where jobs run: they end with it.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """End the local service. Databases, passwords and logs stay."""
    from mlcl.service.local.service import down as end_service

    ended = end_service(home, force=force)
    if json:
        print_json(asdict(ended))
    elif ended.servers:
        names = " and ".join(TITLES[name] for name in ended.servers)
        typer.echo(f"ended {names}: {ended.processes} processes")
    else:
        typer.echo("nothing was running")


def print_service_status(home: Path, *, as_json: bool) -> Exit:
    """Prints the status of the service and returns the exit status."""
    from mlcl.service.local.service import service_status

    status = service_status(home)
    if as_json:
        print_json({"healthy": status.healthy, **asdict(status)})
    else:
        typer.echo("\n".join(_status_lines(status)))
    return Exit.DONE if status.healthy else Exit.FAILED


def _document(started: UpResult) -> dict[str, object]:
    from mlcl.service.local.settings import read_secret

    folder = started.folder
    return {
        **{server.name: server.address for server in started.servers},
        "started": started.fresh,
        "user": read_secret(folder.mlflow_user),
        "password_file": folder.mlflow_password,
        "token_file": folder.ray_token,
        "cluster_file": folder.cluster,
        "store": started.settings.shown.store,
        "artifacts": started.settings.artifacts,
        "outside": started.outside,
    }


def _started_lines(started: UpResult) -> list[str]:
    """Returns lines with the addresses and the files of the secrets."""
    tree = _document(started)
    return [
        *([] if started.fresh else ["already up and well"]),
        f"Ray     {tree['ray']}  token in {tree['token_file']}",
        f"MLflow  {tree['mlflow']}  user {tree['user']}, password in {tree['password_file']}",
        f"store   {tree['store']}; artifacts in {tree['artifacts']}",
        f"jobs    `mlcl submit` finds it by {tree['cluster_file']}; `mlcl down` ends it",
        *_outside(started.outside),
    ]


def _status_lines(status: ServiceStatus) -> list[str]:
    if not status.servers:
        return [f"not up (nothing in {status.folder}): `mlcl up`"]
    lines = []
    for server in status.servers:
        state = (
            f"{server.wrong}: {server.mend}; log {server.log}" if server.wrong else f"well, {server.version}"
        )
        lines += [f"{TITLES[server.name]:<7} {server.address}  {state}", *_outside(server.outside)]
    if status.nodes:
        nodes = f"{status.nodes} node{'' if status.nodes == 1 else 's'}"
        lines.append(f"        {nodes}, {status.cpus:g} CPUs, {status.gpus:g} GPUs")
        lines.append(f"jobs    {', '.join(status.jobs) or 'none'}")
    return [*lines, f"store   {status.store}; artifacts in {status.artifacts}"]


def _outside(listening: list[str]) -> list[str]:
    """A line with the addresses that other machines can reach; none where there are none."""
    if not listening:
        return []
    return [f"note: other machines can reach {', '.join(listening)}; only its secret guards it"]
