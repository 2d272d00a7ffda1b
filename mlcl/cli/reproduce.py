"""`mlcl reproduce`: runs a paper's table and prints the measured values beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mlcl.cli.options import DEFAULT_HOME, BudgetText, Cpus, DryRun, Gpus, Home, Json, Parallel, StrictCode
from mlcl.cli.output import answer, boxed_table, finish, print_tree, say
from mlcl.config import parse_override
from mlcl.config.table.cells import cells_of, data_places
from mlcl.config.table.schema import Table, find_table, load_table, table_files

if TYPE_CHECKING:
    from mlcl.service.tables.plan import TablePlan


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
        typer.Option(help="SOURCE=PLACE or COLUMN=PLACE: where the files are, or a prepared folder."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write the figures of each complete cell to FOLDER/ROW/COLUMN.json.")
    ] = None,
    cpus: Cpus = 1,
    gpus: Gpus = None,
    parallel: Parallel = None,
    budget: BudgetText = None,
    strict_code: StrictCode = False,
    dry_run: DryRun = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run the missing trainings of a paper's table, and print our figures beside the paper's."""
    if list_ or name is None:
        _list_tables(as_json=json)
        return
    file = find_table(name)
    from mlcl.service.engine.packing import Resources
    from mlcl.service.tables.cost import plan_table
    from mlcl.service.tables.plan import TablePlan

    plan = TablePlan(
        load_table(file),
        file,
        scale=scale,
        seeds=seeds,
        only=only or (),
        data=data_places(data or ()),
        overrides=dict(parse_override(text) for text in overrides or ()),
        resources=Resources.of(cpus, gpus, parallel, budget),
        figures=figures,
    )
    if dry_run:
        print_tree(plan_table(plan, home), as_json=json)
    else:
        _run(plan, home, strict_code=strict_code, as_json=json)


def _list_tables(*, as_json: bool) -> None:
    tables = {file.stem: _describe_table(load_table(file), file) for file in table_files()}
    rows = [
        (name, row["source"], row["title"], str(row["cells"]), str(row["seeds"]), ", ".join(row["data"]),
         ", ".join(row["scales"]))
        for name, row in tables.items()
    ]  # fmt: skip
    heads = ("table", "of", "what", "cells", "seeds", "data", "scales")
    answer(tables, boxed_table(heads, rows), as_json=as_json)


def _describe_table(table: Table, file: Path) -> dict[str, Any]:
    jobs = [cell.jobs[0] for cell in cells_of(table, file, seeds=1)]
    places = [place for job in jobs for place in (job.data, job.evaluation.transfer_to) if place is not None]
    return {
        "title": table.title,
        "source": table.source,
        "cells": len(jobs),
        "seeds": table.seeds,
        "data": sorted({place.source or str(place.path) for place in places}),
        "scales": {scale: preset.about for scale, preset in table.scales.items()},
    }


def _run(plan: TablePlan, home: Path, *, strict_code: bool, as_json: bool) -> NoReturn:
    """Runs the missing trainings, writes figures of cells, prints the table and exits with a status."""
    from mlcl.cli.progress import progress_view
    from mlcl.results.documents import document
    from mlcl.service.tables.rendering import markdown
    from mlcl.service.tables.table import run_table
    from mlcl.service.tables.table_log import check_folder, write_cells
    from mlcl.tracking import dashboard, tracking_uri
    from mlcl.tracking.shared_view import view_links

    if plan.figures is not None:
        check_folder(plan.figures)
    with progress_view(as_json=as_json) as listener:
        report = run_table(plan, home=home, watch=listener, strict_code=strict_code)
    if plan.figures is not None:
        files = write_cells(report, plan.figures, plan)
        say(f"the figures of {len(files)} of {len(report.cells)} cells are in {plan.figures}")
    pages, views = dashboard(tracking_uri(home)), view_links(home, report.id)
    tree = {**document(report), "dashboard": pages, "views": views}
    location = f"{report.folder}/table.{{md,tex,json}}; dashboard: {pages}"
    links = (f"{name}: {link}" for name, link in views.items())
    answer(tree, markdown(report), location, *links, as_json=as_json)
    warning = f"out of tolerance: {', '.join(report.outside)}" if report.outside else ""
    finish(report, report.name, home, warning, failed=bool(warning))
