"""`mlcl run`: one experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, DryRun, Home, Json, Overrides, PrintConfig
from mlcl.cli.output import (
    EXIT_OF,
    metrics_table,
    print_job,
    print_json,
    print_tree,
    results,
    say,
    say_undelivered,
    say_unfinished,
    tell,
)
from mlcl.config import JobConfig, job_hash, load_job

if TYPE_CHECKING:
    from mlcl.service.run_job import RunReport


TOLD = ("id", "state", "resumed", "reason", "folder", "mlflow_run_id", "undelivered", "metrics")
"""The fields of a report in the JSON document, beside the job's hash and the address of the dashboard."""


def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    overrides: Overrides = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew, also where an interrupted run exists.")
    ] = False,
    dry_run: DryRun = False,
    print_config: PrintConfig = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run one experiment: train, probe, nearest neighbours, log. An interrupted run is gone on with."""
    checked = load_job(job, overrides or [])
    if print_config:
        print_job(checked, job, overrides or [], as_json=json)
        return
    if dry_run:
        from mlcl.service.dry_run import plan_run

        print_tree(plan_run(checked, home), as_json=json)
        return

    from mlcl.cli.progress import RunProgress
    from mlcl.service.run_job import run_job

    with RunProgress() as progress:
        report = run_job(checked, home=home, listener=progress, fresh=fresh, announce=say)
    _tell(report, checked, home, as_json=json)
    raise typer.Exit(EXIT_OF[report.state])


def _tell(report: RunReport, job: JobConfig, home: Path, *, as_json: bool) -> None:
    """The result to standard output, what to do about it to standard error."""
    from mlcl.tracking import dashboard, tracking_uri

    way = dashboard(tracking_uri(home))
    if as_json:
        tree = {name: getattr(report, name) for name in TOLD}
        print_json({**tree, "job_hash": job_hash(job), "dashboard": way})
    elif report.metrics:
        results.print(metrics_table(report.metrics, f"{job.experiment}  {report.id}"))
        tell(f"mlcl report {report.id}; dashboard: {way}")
    say_undelivered(report.undelivered, home)
    say_unfinished(report.state, report.reason, report.id)
