"""`mlcl export`: a trained model as a folder of its own, and in MLflow's registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.completion import local_names
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import metrics_table, print_json, results
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.service.export_run import ExportResult


def export(
    run: Annotated[
        str,
        typer.Argument(
            help="A run, or a sweep: the best seed of its best setting.", autocompletion=local_names
        ),
    ],
    to: Annotated[
        Path | None, typer.Option("--to", help="The new folder; default: HOME/models/RUN_ID.")
    ] = None,
    register: Annotated[
        str | None, typer.Option("--register", help="Also as this registered model in MLflow.")
    ] = None,
    alias: Annotated[
        str | None, typer.Option("--alias", help="Of the registered version; default: champion.")
    ] = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a run's model, preprocessing, labels and neighbours as a folder that opens without the rest."""
    if alias is not None and register is None:
        raise UserError("goes with --register", key="--alias", found=alias)
    from mlcl.service.export_run import ALIAS, export_run
    from mlcl.tracking import Tracker

    tracker = Tracker.existing(home)
    _print(export_run(tracker, run, to, register, ALIAS if alias is None else alias), as_json=json)


def _print(found: ExportResult, *, as_json: bool) -> None:
    index = found.index
    if as_json:
        ways = {way: its and its.model_dump(by_alias=True) for way, its in index.ways.items()}
        decisions = {way: its.to_json() for way, its in index.decisions.items()}
        document = {"folder": found.folder, "run_id": found.run_id, "registered": found.registered}
        predicts = {"ways": ways, "decisions": decisions, "best": index.best}
        print_json({**document, **predicts, "metrics": index.metrics})
        return
    results.print(metrics_table(index.metrics, f"run {found.run_id}; predicts with {index.best}"))
    if found.folder is not None:
        typer.echo(f'{found.folder}\nmlcl.load_model("{found.folder}")')
    if found.registered is not None:
        typer.echo(f"registered as {found.registered}")
