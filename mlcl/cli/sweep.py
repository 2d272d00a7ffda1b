"""`mlcl sweep`: searches a space, confirms the best settings, and compares them with baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mlcl.api.sweeping import shared_overrides, sweep_plan
from mlcl.cli.options import (
    DEFAULT_HOME,
    BudgetText,
    Cpus,
    DryRun,
    Gpus,
    Home,
    Json,
    Overrides,
    Parallel,
    PrintConfig,
    StrictCode,
    check_control,
)
from mlcl.cli.output import EXIT_OF, continue_text, errors, finish, print_job, print_json, print_tree, tell
from mlcl.config import load_job, load_space, parse_override, parse_setting

if TYPE_CHECKING:
    from mlcl.results.sweep_result import SweepResult
    from mlcl.service.search.sweep_plan import SweepPlan

JobFile = Annotated[Path, typer.Argument(help="The job file.")]
SpaceFile = Annotated[Path, typer.Argument(help="The space file.")]
Trials = Annotated[
    int, typer.Option("--trials", min=1, help="Search trials of each arm, in all its searches.")
]
Seeds = Annotated[int, typer.Option("--seeds", min=0, help="Fresh seeds of each arm that confirm the best.")]
Searches = Annotated[
    int, typer.Option("--searches", min=1, help="Searches that divide an arm's trials and fresh seeds.")
]
Confirm = Annotated[
    int, typer.Option("--confirm", min=1, help="How many of a search's best race on fresh seeds.")
]
Control = Annotated[
    Path | None, typer.Option("--control", help="The job file of the control; default: JOB without heads.")
]
NoControl = Annotated[bool, typer.Option("--no-control", help="Confirm without the control.")]
Baselines = Annotated[
    list[Path] | None,
    typer.Option("--baseline", help="A job file that is searched beside, too; JOB:SPACE: in its space."),
]
NoBaselines = Annotated[
    bool, typer.Option("--no-baselines", help="Confirm without the baselines that fit, see `mlcl baselines`.")
]
Name = Annotated[str | None, typer.Option("--name", help="The sweep to go on with; default: JOB-SPACE.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start anew, also where a sweep of this name exists.")]
WarmStart = Annotated[
    str | None, typer.Option("--warm-start", help="Sweep (name or id) whose trials in the space are reused.")
]
Try = Annotated[
    list[str] | None,
    typer.Option("--try", help="KEY=VALUE,...: a setting to train after the job as written."),
]


def sweep(
    job: JobFile,
    space: SpaceFile,
    overrides: Overrides = None,
    trials: Trials = 16,
    seeds: Seeds = 0,
    searches: Searches = 3,
    confirm: Confirm = 2,
    control: Control = None,
    no_control: NoControl = False,
    baseline: Baselines = None,
    no_baselines: NoBaselines = False,
    budget: BudgetText = None,
    name: Name = None,
    fresh: Fresh = False,
    warm_start: WarmStart = None,
    try_: Try = None,
    cpus: Cpus = 1,
    gpus: Gpus = None,
    parallel: Parallel = None,
    strict_code: StrictCode = False,
    dry_run: DryRun = False,
    print_config: PrintConfig = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Search temperatures, weights and any other key; confirm the best on fresh seeds beside baselines."""
    config = load_job(job, overrides or [])
    if print_config and not dry_run:
        load_space(space, config)
        print_job(config, job, overrides or [], as_json=json)
        return

    check_control(control, no_control=no_control)
    numbers: dict[str, Any] = {"trials": trials, "seeds": seeds, "searches": searches, "confirm": confirm}
    numbers |= {"cpus": cpus, "gpus": gpus, "parallel": parallel, "budget": budget}
    plan = sweep_plan(
        config,
        space,
        name=f"{job.stem}-{space.stem}" if name is None else name,
        home=home,
        shared=shared_overrides(dict(map(parse_override, overrides or []))),
        control=False if no_control else control,
        baselines=baseline or [],
        fitted=not no_baselines,
        **numbers,
        warm_start=warm_start,
        try_first=[parse_setting(text) for text in try_ or []],
        fresh=fresh,
    )
    if dry_run:
        _print_plan(plan, home, full=print_config, as_json=json)
        return
    from mlcl.cli.progress import progress_view  # imports Ray and MLflow, which a dry run does not need
    from mlcl.service.search.sweep import run_sweep

    with progress_view(as_json=json) as listener:
        report = run_sweep(plan, home=home, watch=listener, strict_code=strict_code)
    _finish(plan, report, home, as_json=json)


def _print_plan(plan: SweepPlan, home: Path, *, full: bool, as_json: bool) -> None:
    from mlcl.cli.sweep_tables import sweep_lines
    from mlcl.service.search.plan_checks import plan_sweep

    tree = plan_sweep(plan, home)
    if full or as_json:
        print_tree(tree, as_json=as_json)
    else:
        for line in sweep_lines(tree):
            tell(line)


def _finish(plan: SweepPlan, report: SweepResult, home: Path, *, as_json: bool) -> NoReturn:
    from mlcl.cli.sweep_tables import print_conclusions, print_result
    from mlcl.results.documents import document
    from mlcl.store import home_option
    from mlcl.tracking import dashboard, tracking_uri
    from mlcl.tracking.shared_view import view_links

    pages, views = dashboard(tracking_uri(home)), view_links(home, report.id)
    if as_json:
        print_json({**document(report), "dashboard": pages, "views": views})
        raise typer.Exit(EXIT_OF[report.state])
    print_result(report)
    if report.spent:
        tell(f"spent: {report.spent}")
    tell(f"mlcl report {report.name}{home_option(home)}; dashboard: {pages}")
    for name, link in views.items():
        typer.echo(f"{name}: {link}")
    most_tried = max((sum(search.tried for search in arm.searches) for arm in report.arms), default=0)
    more = f"--trials {2 * max(plan.trials, most_tried)}"
    hint, note = f"{continue_text(more)} grows", "every setting of the space has been tried"
    if report.state == "COMPLETE":
        search_trials = math.ceil(plan.trials / (plan.searches if plan.seeds else 1))  # trials of each search
        exhausted = plan.points is not None and plan.points <= search_trials
        errors.print(note if exhausted else f"{hint} {report.name}", markup=False)
    print_conclusions(report)
    finish(report, report.name, home)
