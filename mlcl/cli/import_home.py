"""`mlcl import`: takes over what is complete in another home."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import print_json


def import_home(
    source: Annotated[Path, typer.Argument(metavar="HOME", help="The home of other commands.")],
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Copy the complete runs, sweeps and tables of another home, which a table then does not train again."""
    from mlcl.service.import_home import import_home as copy

    copied = copy(source, home)
    if json:
        print_json({"from": source, "copied": [asdict(record) for record in copied]})
        return
    for record in copied:
        typer.echo(f"{record.kind.removesuffix('s')} {record.name or record.id}")
    typer.echo(f"{len(copied)} copied from {source}; the rest is here already, or is not complete")
