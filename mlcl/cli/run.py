"""`mlcl run` and `mlcl baseline`: run one experiment, and fit baselines on a job's data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from mlcl.cli.options import DEFAULT_HOME, Cpus, DryRun, Gpus, Home, Json, Overrides, PrintConfig
from mlcl.cli.output import (
    boxed_table,
    finish,
    metrics_table,
    print_job,
    print_json,
    print_tree,
    results,
    say,
    tell,
)
from mlcl.config import load_job

if TYPE_CHECKING:
    from mlcl.service.run_baselines import BaselinePlan
    from mlcl.service.run_job import RunReport

REPORTED = ("id", "state", "resumed", "reason", "folder", "mlflow_run_id", "undelivered", "metrics")
"""The fields of a report in the JSON document, besides the job's hash and the address of the dashboard."""
REPORTED_BASELINE = ("id", "state", "reason", "folder", "mlflow_run_id", "metrics")
FIGURES = ("micro_f1", "macro_f1", "accuracy")
"""The metrics that are shown besides the selecting metric, if the task has them."""
OPTIONS = "baseline/"
"""The prefix of the metrics that record the chosen options of a baseline and the CPU time of the fit."""


def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    overrides: Overrides = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew, also where an interrupted run exists.")
    ] = False,
    cpus: Cpus = 1,
    gpus: Gpus = None,
    dry_run: DryRun = False,
    print_config: PrintConfig = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Run one experiment: train, probe, score nearest neighbours, log. An interrupted run is continued."""
    config = load_job(job, overrides or [])
    if print_config:
        print_job(config, job, overrides or [], as_json=json)
        return
    if dry_run:
        from mlcl.service.dry_run import plan_run

        print_tree(plan_run(config, home), as_json=json)
        return

    from mlcl.cli.progress import RunProgress
    from mlcl.service.run_job import run_job
    from mlcl.store import home_option
    from mlcl.tracking import dashboard, tracking_uri

    with RunProgress() as progress:
        report = run_job(
            config, home=home, listener=progress, fresh=fresh, announce=say, cpus=cpus, gpus=gpus
        )
    pages = dashboard(tracking_uri(home))
    if json:
        tree = {name: getattr(report, name) for name in REPORTED}
        print_json({**tree, "job_hash": report.job_hash, "dashboard": pages})
    elif report.metrics:
        results.print(metrics_table(report.metrics, f"{config.experiment}  {report.id}"))
        tell(f"mlcl report {report.id}{home_option(home)}; dashboard: {pages}")
    finish(report, report.id, home)


def baseline(
    what: Annotated[
        Path, typer.Argument(metavar="JOB|DATA", help="A job file, or the folder of a prepared data set.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...] [KEY=VALUE...]", help="Which baselines; overrides of the job."),
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Label space, with a folder that has several.")] = None,
    dry_run: DryRun = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Fit all suitable or the named baselines on a job's data. Validation chooses C, threshold and k."""
    from mlcl.service.run_baselines import BaselinePlan
    from mlcl.training.baselines.jobs import job_or_dataset

    names = [word for word in words or () if "=" not in word]
    job = job_or_dataset(what, [word for word in words or () if "=" in word], labels)
    default_names = [] if names or job.baseline is None else [job.baseline]
    plan = BaselinePlan.of(job, names or default_names, home)
    if dry_run:
        print_tree(plan.describe(home), as_json=json)
    else:
        _run_baselines(plan, home, as_json=json)


def _run_baselines(plan: BaselinePlan, home: Path, *, as_json: bool) -> None:
    from mlcl.cli.progress import RunProgress
    from mlcl.service.run_baselines import best_baseline, run_baselines
    from mlcl.training.baseline_fits import DRAWS

    with RunProgress() as progress:
        reports = run_baselines(plan, home=home, listener=progress, announce=say)
    metric = next(iter(plan.jobs.values())).evaluation.metric
    best, mean_scores = best_baseline(plan, reports, home=home, announce=say)
    if as_json:
        trees = {
            name: {key: getattr(report, key) for key in REPORTED_BASELINE} for name, report in reports.items()
        }
        document = {"metric": metric, "best": best, "baselines": trees, "left_out": plan.left_out}
        print_json({**document, "redrawn": mean_scores})
    else:
        results.print(_baseline_table(reports, metric))
        for name, reason in plan.left_out.items():
            typer.echo(f"{name} left out: {reason}")
        if best is not None:
            metric_names = (metric, metric.replace("val/", "test/"))
            figures = ", ".join(f"{name} {reports[best].metrics[name]:.4f}" for name in metric_names)
            criterion = f"{DRAWS} draws of the few validation rows" if mean_scores else "validation"
            typer.echo(f"best on {criterion}: {best}, {figures}")
    last_report = list(reports.values())[-1]
    finish(last_report, last_report.id, home, failed=len(reports) < len(plan.jobs))


def _baseline_table(reports: Mapping[str, RunReport], metric: str) -> Table:
    known_metrics = {name for report in reports.values() for name in report.metrics}
    main_name = metric.rpartition("/")[2]
    names = [main_name, *(name for name in FIGURES if name != main_name and f"val/{name}" in known_metrics)]
    columns = [f"{split}/{name}" for name in names for split in ("val", "test")]
    rows = []
    for name, report in reports.items():
        metrics = report.metrics
        options = {key[len(OPTIONS) :]: value for key, value in metrics.items() if key.startswith(OPTIONS)}
        seconds = options.pop("fit_cpu_seconds", None)
        figures = (f"{metrics[column]:.4f}" if column in metrics else "" for column in columns)
        values = ", ".join(f"{key} {value:g}" for key, value in options.items())
        rows.append([name, *figures, values, "" if seconds is None else f"{seconds:.1f}", str(report.state)])
    heads = ("baseline", *columns, "chosen", "CPU s", "state")
    return boxed_table(heads, rows, "Baselines", right=(*columns, "CPU s"))
