"""`mlcl run`: one experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.options import DEFAULT_HOME, DryRun, Home, Json, Overrides, PrintConfig
from mlcl.cli.output import finish, metrics_table, print_job, print_json, print_tree, results, say, tell
from mlcl.config import job_hash, load_job

REPORTED = ("id", "state", "resumed", "reason", "folder", "mlflow_run_id", "undelivered", "metrics")
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
    from mlcl.tracking import dashboard, tracking_uri

    with RunProgress() as progress:
        report = run_job(checked, home=home, listener=progress, fresh=fresh, announce=say)
    pages = dashboard(tracking_uri(home))
    if json:
        tree = {name: getattr(report, name) for name in REPORTED}
        print_json({**tree, "job_hash": job_hash(checked), "dashboard": pages})
    elif report.metrics:
        results.print(metrics_table(report.metrics, f"{checked.experiment}  {report.id}"))
        tell(f"mlcl report {report.id}; dashboard: {pages}")
    finish(report, report.id, home)
