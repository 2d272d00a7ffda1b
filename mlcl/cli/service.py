"""`mlcl up`, `mlcl down`, and the service's `mlcl status`: run Ray and MLflow on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json, reject_typed_secrets
from mlcl.cli.output import Exit, answer, say
from mlcl.markup import format_count

if TYPE_CHECKING:
    from mlcl.service.local.service import ServiceStatus

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
    """Start the local service, a Ray head and an MLflow server for this machine. Running servers are kept."""
    from mlcl.service.local.service import start_service

    ports = {"ray_port": ray_port, "dashboard_port": dashboard_port, "mlflow_port": mlflow_port}
    options = {**ports, "store": store, "artifacts": artifacts}
    service = start_service({name: value for name, value in options.items() if value is not None}, home, say)
    lines = [
        *([] if service.started else ["already up and well"]),
        f"Ray     {service.ray}  token in {service.token_file}",
        f"MLflow  {service.mlflow}  user {service.user}, password in {service.password_file}",
        f"store   {service.store}; artifacts in {service.artifacts}",
        f"jobs    `mlcl submit` finds it by {service.cluster_file}; `mlcl down` ends it",
        *_outside_notes(service.outside),
    ]
    answer(asdict(service), *lines, as_json=json)


def down(
    force: Annotated[bool, typer.Option("--force", help="Also where jobs run: they end with it.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Stop the local service. Databases, passwords and logs are kept."""
    from mlcl.service.local.service import end_service

    result = end_service(home, force=force)
    names = " and ".join(TITLES[name] for name in result.servers)
    text = f"ended {names}: {result.processes} processes" if names else "nothing was running"
    answer(asdict(result), text, as_json=json)


def print_service_status(home: Path, *, as_json: bool) -> Exit:
    """Prints the status of the service and returns the exit status."""
    from mlcl.service.local.service import service_status

    status = service_status(home)
    answer({"healthy": status.healthy, **asdict(status)}, *_status_lines(status), as_json=as_json)
    return Exit.DONE if status.healthy else Exit.FAILED


def _status_lines(status: ServiceStatus) -> list[str]:
    if not status.servers:
        return [f"not up (nothing in {status.folder}): `mlcl up`"]
    lines = []
    for server in status.servers:
        state = (
            f"{server.wrong}: {server.mend}; log {server.log}" if server.wrong else f"well, {server.version}"
        )
        lines += [f"{TITLES[server.name]:<7} {server.address}  {state}", *_outside_notes(server.outside)]
    if status.nodes:
        nodes = format_count(status.nodes, "node")
        lines.append(f"        {nodes}, {status.cpus:g} CPUs, {status.gpus:g} GPUs")
        lines.append(f"jobs    {', '.join(status.jobs) or 'none'}")
    return [*lines, f"store   {status.store}; artifacts in {status.artifacts}"]


def _outside_notes(addresses: list[str]) -> list[str]:
    """Returns a line with the addresses that other machines can reach; none if there are none."""
    if not addresses:
        return []
    return [f"note: other machines can reach {', '.join(addresses)}; only its secret guards it"]
