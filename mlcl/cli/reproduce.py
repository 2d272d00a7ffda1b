"""`mlcl reproduce`: a paper's table, our figures beside the printed ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table as Grid

from mlcl.cli.output import (
    DEFAULT_HOME,
    EXIT_OF,
    DryRun,
    Exit,
    Home,
    Json,
    errors,
    print_json,
    print_tree,
    results,
    say,
    undelivered_text,
)
from mlcl.cli.watching import watching
from mlcl.config import parse_override
from mlcl.config.table import find_table, load_table, table_files
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.service.reproduce import TableReport


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="A table by name, or a file.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key.path=value, for the jobs of all cells.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tables, and what they need.")] = False,
    scale: Annotated[str | None, typer.Option(help="A smaller preset of the table.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Cells, as ROW/COLUMN, ROW or COLUMN; * stands for anything.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of a cell; default: the table's.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="SOURCE=PLACE: where a source's files are, or a prepared folder."),
    ] = None,
    cpus: Annotated[float, typer.Option(help="CPUs of a training's process.")] = 1,
    gpus: Annotated[float | None, typer.Option(help="GPUs of a training's process.")] = None,
    dry_run: DryRun = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run what is missing of a paper's table and print our figures beside the printed ones."""
    if list_ or name is None:
        _list(as_json=json)
        return
    file = find_table(name)
    from mlcl.service.reproduce import TablePlan, plan_table, run_table

    plan = TablePlan(
        load_table(file),
        file,
        scale=scale,
        seeds=seeds,
        only=only or (),
        data=dict(_place(text) for text in data or ()),
        overrides=dict(parse_override(text) for text in overrides or ()),
        cpus=cpus,
        gpus=gpus,
    )
    if dry_run:
        print_tree(plan_table(plan, home), as_json=json)
        return
    with watching(as_json=json) as watch:
        report = run_table(plan, home=home, watch=watch)
    _tell(report, home, as_json=json)
    failed = report.state == "COMPLETE" and report.outside
    raise typer.Exit(Exit.FAILED if failed else EXIT_OF[report.state])


def _place(text: str) -> tuple[str, str]:
    source, equals, place = text.partition("=")
    if not equals or not source or not place:
        raise UserError("not a place of data", key="--data", found=text, allowed="SOURCE=PLACE")
    return source, place


def _list(*, as_json: bool) -> None:
    """All tables with their cells, data and presets."""
    found = {file.stem: load_table(file) for file in table_files()}
    if as_json:
        print_json(
            {
                name: {
                    "title": table.title,
                    "source": table.source,
                    "cells": len(table.rows) * len(table.columns),
                    "seeds": table.seeds,
                    "scales": {scale: its.about for scale, its in table.scales.items()},
                }
                for name, table in found.items()
            }
        )
        return
    if not found:
        raise UserError("no tables here", key="TABLE", found=Path.cwd() / "tables", allowed="tables/*.yaml")
    grid = Grid("table", "of", "what", "cells", "seeds", "scales")
    for name, table in found.items():
        cells = str(len(table.rows) * len(table.columns))
        grid.add_row(
            name, escape(table.source), escape(table.title), cells, str(table.seeds), ", ".join(table.scales)
        )
    results.print(grid)


def _tell(report: TableReport, home: Path, *, as_json: bool) -> None:
    """The table to standard output, what to do about it to standard error."""
    from mlcl.service.reproduce.render import as_dict, markdown
    from mlcl.tracking import dashboard, tracking_uri

    way = dashboard(tracking_uri(home))
    if as_json:
        print_json({**as_dict(report), "outside": report.outside, "dashboard": way})
    else:
        typer.echo(markdown(report))
        typer.echo(f"{report.folder}/table.{{md,tex,json}}; dashboard: {way}")
    if report.undelivered:
        say(undelivered_text(report.undelivered, home))
    if report.state == "STOPPED":
        say("stopped; the same command goes on")
    elif report.state == "FAILED":
        errors.print(f"failed: {report.reason}", style="red", markup=False)
    elif report.outside:
        errors.print(f"out of tolerance: {', '.join(report.outside)}", style="red", markup=False)
