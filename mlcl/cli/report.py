"""`mlcl report`: a sweep or a table as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.completion import local_names
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import print_json, say, tell
from mlcl.errors import UserError
from mlcl.plugins import only_reading


def report(
    name: Annotated[
        str, typer.Argument(metavar="SWEEP|TABLE|RUN", help="Its name or id.", autocompletion=local_names)
    ],
    to: Annotated[
        Path | None, typer.Option("--to", help="The report's folder; default: HOME/reports/ID.")
    ] = None,
    links: Annotated[
        str | None, typer.Option("--links", metavar="URL", help="Where the links find MLflow's pages.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without the plots that need the data set.")] = False,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="NAME", help="Of the t-SNE, once for each; default: a handful."),
    ] = None,
    row: Annotated[
        str | None, typer.Option("--row", metavar="ID", help="Shown with its neighbours; default: drawn.")
    ] = None,
    log: Annotated[bool, typer.Option("--log/--no-log", help="Log the report to its run in MLflow.")] = True,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a report: one page that opens anywhere, Markdown, and every plot as a file."""
    from mlcl.report.embedding_plots import EmbeddingOptions
    from mlcl.report.report import make_report
    from mlcl.results.runs import Runs
    from mlcl.service.local.service import mlflow_address
    from mlcl.tracking import Tracker, dashboard

    if quick and (classes or row):
        key = "--class" if classes else "--row"
        raise UserError(
            "is for plots that --quick leaves out", key=key, found=", ".join(classes or [str(row)])
        )
    tracker = Tracker.existing(home)
    if links is None and tracker.uri.startswith("sqlite:"):
        links = mlflow_address(home)
    options = EmbeddingOptions(quick, tuple(classes or ()), row)
    with only_reading():
        made = make_report(
            Runs(tracker), name, home, folder=to, server=links, embeddings=options, log=log, announce=say
        )
    if json:
        print_json(
            {
                "page": str(made.page),
                "run_id": made.run_id,
                "logged": made.logged,
                "plots": made.plots,
                "conclusions": list(made.conclusions),
                "missing": [{"plot": plot, "why": why} for plot, why in made.missing],
            }
        )
        return
    tell(f"report: {made.page}")
    if made.logged:
        tell(f"in MLflow: the artifact report/report.html of {name} ({dashboard(tracker.uri)})")
    for sentence in made.conclusions:
        tell(sentence)
