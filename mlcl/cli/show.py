"""`mlcl show` and `mlcl open`: one run, sweep or table of a home."""

from __future__ import annotations

import json as text_json
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.completion import local_names
from mlcl.cli.options import DEFAULT_HOME, Home, Json
from mlcl.cli.output import Column, fitted_table, metrics_table, print_json, results, say, tell
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.cli.local_runs import LocalRun

Name = Annotated[
    str,
    typer.Argument(help="A name or id of `mlcl list`, its beginning, or @last.", autocompletion=local_names),
]


StudyFile = Annotated[
    Path | None,
    typer.Option("--study", help="A new file that gets a copy of the Optuna study, for optuna-dashboard."),
]


def show(name: Name, study: StudyFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """A run, sweep or table: its state and its figures."""
    from mlcl.cli.local_runs import local_run

    its = local_run(home, name)
    if study is not None:
        from mlcl.service.engine.ledger import Ledger
        from mlcl.service.search.study import write_studies

        write_studies(Ledger(its.folder), study)
        say(f"written: {study}; `optuna-dashboard {study}` shows it")
    if json:
        print_json(asdict(its))
        return
    for key in ("kind", "name", "state", "created", "best", "folder"):
        tell(f"{key:8} {getattr(its, key)}")
    if its.kind == "sweep":
        _trials(its)
    elif (its.folder / "table.md").is_file():
        typer.echo((its.folder / "table.md").read_text(encoding="utf-8"))
    elif (its.folder / "result.json").is_file():
        figures = text_json.loads((its.folder / "result.json").read_text(encoding="utf-8"))
        results.print(metrics_table(figures, its.name))


def open_page(
    name: Name,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="MLflow's pages, not the report.")] = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Open a report, or MLflow's pages, in the browser."""
    from mlcl.cli.local_runs import local_run
    from mlcl.report.report import REPORTS
    from mlcl.report.report_files import PAGE
    from mlcl.service.local.service import mlflow_address

    its = local_run(home, name)
    page = home / REPORTS / its.id / PAGE
    address = mlflow_address(home) if dashboard else page.resolve().as_uri()
    if dashboard and address is None:
        raise UserError("no MLflow server runs here", key="--dashboard", found=home, allowed="mlcl up")
    if not dashboard and not page.is_file():
        raise UserError("has no report yet", key="NAME", found=its.name, allowed=f"mlcl report {its.name}")
    tell(str(address))
    if not webbrowser.open(str(address)):
        say("no browser answered: open the address above")


def _trials(its: LocalRun) -> None:
    """The best complete trials of a sweep."""
    from mlcl.cli.sweep_tables import BEST_SHOWN, drawn_text
    from mlcl.results.documents import local_sweep
    from mlcl.results.sweep_result import ranked

    sweep = local_sweep(its.folder)
    best = ranked(sweep.trials, sweep.mode)[:BEST_SHOWN]
    columns = [
        Column("trial", [trial.label for trial in best]),
        Column(sweep.score, [f"{trial.score:.4f}" for trial in best]),
        Column("settings", [drawn_text({**trial.settings, **trial.chosen}) for trial in best], texts=True),
    ]
    results.print(fitted_table(columns))
