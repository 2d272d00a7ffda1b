"""`mlcl sweep`: search a space, confirm, compare."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from mlcl.cli.output import (
    DEFAULT_HOME,
    EXIT_OF,
    DryRun,
    Home,
    Json,
    Overrides,
    PrintConfig,
    print_json,
    print_tree,
    results,
    say,
)
from mlcl.config import dump_job, load_job, load_space

if TYPE_CHECKING:
    from mlcl.service.stages import Confirmation
    from mlcl.service.sweep import SweepReport

BEST_SHOWN = 5


def sweep(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    space: Annotated[Path, typer.Argument(help="The space file.")],
    overrides: Overrides = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials to run.")] = 16,
    seeds: Annotated[int, typer.Option("--seeds", min=0, help="Fresh seeds that confirm the best.")] = 0,
    baseline: Annotated[
        list[Path] | None, typer.Option("--baseline", help="A job file to run beside, on the same seeds.")
    ] = None,
    cpus: Annotated[float, typer.Option("--cpus", min=0.01, help="CPUs of a trial.")] = 1,
    gpus: Annotated[
        float | None,
        typer.Option("--gpus", min=0, help="GPU share of a trial; default: one where there are any."),
    ] = None,
    dry_run: DryRun = False,
    print_config: PrintConfig = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Search temperatures, weights and any other key; confirm the best on fresh seeds beside baselines."""
    checked = load_job(job, overrides or [])
    if print_config:
        print_tree(dump_job(checked), as_json=json)
        return
    checked_space = load_space(space, checked)
    # Overrides of the training hold for baselines too: all share epochs, batch size and data.
    shared = [
        text for text in overrides or [] if text.startswith(("train.", "data.", "encoder.", "evaluation."))
    ]
    baselines = [(path.stem, load_job(path, shared)) for path in baseline or []]

    from mlcl.service.plan import plan_sweep
    from mlcl.service.sweep import run_sweep
    from mlcl.service.sweep_plan import SweepPlan
    from mlcl.tracking import Tracker

    plan = SweepPlan(checked, checked_space, space.read_text(), trials, seeds, baselines, cpus, gpus)
    if dry_run:
        print_tree(plan_sweep(plan, home), as_json=json)
        return
    report = run_sweep(plan, home=home, announce=say)
    dashboard = Tracker(home).dashboard()
    if json:
        print_json({**_tree(report), "dashboard": dashboard})
    else:
        _print(report)
        typer.echo(f"MLflow run of the sweep {report.mlflow_run_id}; dashboard: {dashboard}")
    raise typer.Exit(EXIT_OF[report.state])


def _print(report: SweepReport) -> None:
    results.print(_trials_table(report))
    if report.confirmations:
        results.print(_confirmation_table(report))
    if report.registered:
        typer.echo(f"best model: {report.registered}")


def _trials_table(report: SweepReport) -> Table:
    """The best search trials with their settings."""
    search = [trial for trial in report.trials if trial.score is not None and trial.state == "COMPLETE"]
    search.sort(key=lambda trial: trial.score or 0.0, reverse=report.mode == "max")
    states = [trial.state.value for trial in report.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    table = Table(title=f"{report.id}: {counts or 'no trial'}", title_justify="left")
    table.add_column("trial")
    table.add_column(report.score, justify="right")
    table.add_column("settings", overflow="fold")
    table.add_column("MLflow run", overflow="fold")
    for trial in search[:BEST_SHOWN]:
        table.add_row(trial.label, f"{trial.score:.4f}", settings_text(trial.settings), trial.run_id)
    return table


def _confirmation_table(report: SweepReport) -> Table:
    """Candidates over fresh seeds: the classifier alone and with neighbours, validation and test."""
    name = report.score.rpartition("/")[2]
    count = len(report.confirmations[0].seeds)
    table = Table(
        title=f"{name}, mean ± standard deviation over {count} fresh seeds (none used by the search)",
        title_justify="left",
    )
    table.add_column("setting", overflow="fold")
    columns = {
        f"val/{name}": "validation",
        f"knn_best/val/{name}": "validation + kNN",
        f"test/{name}": "test",
        f"knn_best/test/{name}": "test + kNN",
    }
    # Coarser levels of a hierarchy, where the classes have one: what the coarse heads are for.
    coarse = {metric for group in report.confirmations for trial in group.seeds for metric in trial.metrics}
    columns |= {
        metric: f"test, {metric.removeprefix('test/accuracy_')}"
        for metric in sorted(coarse)
        if metric.startswith("test/accuracy_")
    }
    for title in columns.values():
        table.add_column(title, justify="right")
    table.add_column("MLflow run", overflow="fold")
    for group in report.confirmations:
        table.add_row(group.candidate.label, *(_mean(group, metric) for metric in columns), group.log.run_id)
    return table


def _mean(group: Confirmation, metric: str) -> str:
    values = group.values(metric)
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    missing = f" ({len(values)} of {len(group.seeds)} seeds)" if len(values) < len(group.seeds) else ""
    return f"{statistics.fmean(values):.4f}{spread}{missing}"


def settings_text(settings: Any) -> str:
    """`section.temperature 0.08, ...`: keys without the part that all share."""
    short = {key.removeprefix("objective.heads."): value for key, value in settings.items()}
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in short.items()
    )


def _tree(report: SweepReport) -> dict[str, Any]:
    return {
        "id": report.id,
        "state": report.state,
        "folder": report.folder,
        "mlflow_run_id": report.mlflow_run_id,
        "score": report.score,
        "mode": report.mode,
        "best": report.best and report.best.label,
        "registered": report.registered,
        "trials": [
            {
                "label": trial.label,
                "state": trial.state,
                "score": trial.score,
                "reason": trial.reason,
                "settings": dict(trial.settings),
                "mlflow_run_id": trial.run_id,
            }
            for trial in report.trials
        ],
        "confirmations": [
            {
                "label": group.candidate.label,
                "mlflow_run_id": group.log.run_id,
                "seeds": [
                    {"state": t.state, "mlflow_run_id": t.run_id, "metrics": t.metrics} for t in group.seeds
                ],
            }
            for group in report.confirmations
        ],
    }
