"""`mlcl list`, `show`, `report` and `open`: show the runs, sweeps and tables of a home."""

from __future__ import annotations

import json as text_json
import webbrowser
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from mlcl.cli.jobs import SERVICE, ClusterFile, client_of, job_tree, jobs_table, known_jobs
from mlcl.cli.options import (
    DEFAULT_HOME,
    Home,
    Json,
    check_writable,
    home_in_shell,
    local_names,
    match_beginning,
)
from mlcl.cli.output import fitted_table, metrics_table, print_json, results, say, tell
from mlcl.errors import UserError, did_you_mean
from mlcl.files import bytes_on_disk
from mlcl.markup import megabytes
from mlcl.plugins import only_reading
from mlcl.results.runs import LAST
from mlcl.store import Database, RunFolder, RunRecord, home_option, home_records
from mlcl.tracking import State
from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON

METRICS = TypeAdapter(dict[str, float])
Name = Annotated[
    str,
    typer.Argument(help="A name or id of `mlcl list`, its beginning, or @last.", autocompletion=local_names),
]
StudyFile = Annotated[
    Path | None,
    typer.Option("--study", help="A new file that gets a copy of the Optuna study, for optuna-dashboard."),
]


@dataclass(frozen=True)
class LocalRun:
    """A run, sweep or table of a home, as `mlcl list` shows it. `best` is the main metric as text."""

    kind: str
    id: str
    name: str
    state: str
    created: str
    folder: Path
    best: str

    @property
    def age(self) -> str:
        """The time since the start as text: `5m`, `3h`, `12d`."""
        start_time = datetime.strptime(self.created[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)
        minutes = max(0, int((datetime.now(timezone.utc) - start_time).total_seconds() // 60))
        days, hours = minutes // 1440, minutes // 60
        return f"{days}d" if days else f"{hours}h" if hours else f"{minutes}m"


def list_runs(cluster: ClusterFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """List the runs, sweeps and tables of the home, and the jobs of the cluster or the local service."""
    runs, views = local_runs(home), None
    tree: dict[str, Any] = {"runs": [asdict(run) for run in runs]}
    if cluster is not None or (home / SERVICE).is_file():
        client = client_of(cluster, home)
        views = known_jobs(client, home)
        tree |= {"cluster": client.cluster.ray.address, "jobs": [job_tree(view) for view in views]}
    if json:
        print_json(tree)
        return
    if runs:
        heads = ("name", "kind", "state", "best", "age")
        rows = [[str(getattr(run, head)) for head in heads] for run in runs]
        results.print(fitted_table(heads, rows, ranks=(0, 2, 0, 3, 1)))
        say(f"{home} takes {megabytes(bytes_on_disk(home))}")
    elif views is None:
        say(f"nothing was run in {home} yet")
    if views is not None:
        results.print(jobs_table(views))


def show(name: Name, study: StudyFile = None, json: Json = False, home: Home = DEFAULT_HOME) -> None:
    """Show a run with its metrics, a sweep with its verdicts, or a table with its cells."""
    run = local_run(home, name)
    if study is not None:
        from mlcl.service.engine.ledger import Ledger
        from mlcl.service.search.study_copy import write_studies

        check_writable(study, "--study")
        write_studies(Ledger(run.folder), study)
        say(f"written: {study}; `optuna-dashboard {study}` shows it")
    if json:
        print_json(asdict(run) | _outcome(run))
        return
    for key in ("kind", "name", "state", "created", "best", "folder"):
        tell(f"{key:8} {getattr(run, key)}")
    if run.kind == "sweep":
        from mlcl.cli.sweep_tables import print_conclusions, print_result
        from mlcl.results.documents import local_sweep

        sweep = local_sweep(run.folder)
        print_result(sweep)
        print_conclusions(sweep)
    elif (run.folder / "table.md").is_file():
        typer.echo((run.folder / "table.md").read_text(encoding="utf-8"))
    elif (run.folder / "result.json").is_file():
        results.print(metrics_table(_read_metrics(run.folder / "result.json"), run.name))


def _outcome(run: LocalRun) -> dict[str, Any]:
    """Returns the metrics of a run or the verdicts of a sweep, for JSON; an empty dict before it has any."""
    from mlcl.results.documents import local_sweep

    if run.kind == "sweep" and (run.folder / SWEEP_JSON).is_file():
        return {"verdicts": [verdict.as_dict() for verdict in local_sweep(run.folder).verdicts]}
    file = run.folder / "result.json"
    return {"metrics": _read_metrics(file)} if file.is_file() else {}


def _read_metrics(file: Path) -> dict[str, float]:
    try:
        return METRICS.validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError("is damaged", file=file, found=error.errors()[0]["msg"]) from None


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
        typer.Option(
            "--class",
            metavar="NAME",
            help="Of the t-SNE, once for each, or mlcl-figure3; default: a handful.",
        ),
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
        key, found = ("--class", ", ".join(classes)) if classes else ("--row", row)
        raise UserError("is for plots that --quick leaves out", key=key, found=found)
    tracker = Tracker.open_existing(home)
    if links is None and tracker.uri.startswith("sqlite:"):
        links = mlflow_address(home)
    options = EmbeddingOptions(quick, tuple(classes or ()), row)
    with only_reading():
        result = make_report(
            Runs(tracker), name, home, folder=to, server=links, embeddings=options, log=log, announce=say
        )
    if json:
        tree = {key: getattr(result, key) for key in ("page", "run_id", "logged", "plots", "conclusions")}
        print_json(tree | {"missing": [{"plot": plot, "why": reason} for plot, reason in result.missing]})
        return
    tell(f"report: {result.page}")
    if result.logged:
        tell(f"in MLflow: the artifact report/report.html of {name} ({dashboard(tracker.uri)})")
    for sentence in result.conclusions:
        tell(sentence)


def open_page(
    name: Name,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="MLflow's pages, not the report.")] = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Open a report, or MLflow's pages, in the browser."""
    from mlcl.report.report import REPORTS
    from mlcl.report.report_files import PAGE
    from mlcl.service.local.service import mlflow_address

    run = local_run(home, name)
    page = home / REPORTS / run.id / PAGE
    address = mlflow_address(home) if dashboard else page.resolve().as_uri()
    if dashboard and address is None:
        raise UserError("no MLflow server runs here", key="--dashboard", found=home, allowed="mlcl up")
    if not dashboard and not page.is_file():
        allowed = f"mlcl report {run.name}{home_option(home)}"
        raise UserError("has no report yet", key="NAME", found=run.name, allowed=allowed)
    tell(str(address))
    if not webbrowser.open(str(address)):
        say("no browser could be opened: open the address above")


def local_runs(home: Path) -> list[LocalRun]:
    """Returns the runs, sweeps and tables of a home, latest first, without the runs of a table's cells.

    Raises UserError for a home that has folders of runs and has lost its database.
    """
    records = list(home_records(home))
    if not records:
        Database(home).check()
    return [
        _read_run(home, folder, record)
        for folder, record in records
        if _folder_kind(folder) != "run" or not first_entry(log_folder(home, record.log) / LOG).get("parent")
    ]


def local_run(home: Path, word: str) -> LocalRun:
    """Returns the latest run, sweep or table whose name or id is `word`, or else begins with it.

    `@last` is the latest of all. Raises UserError if there is none, or if several names begin with `word`.
    """
    runs = local_runs(home)
    if word == LAST:
        if not runs:
            raise UserError("nothing was run in this home yet", key="NAME", found=f"{word} of {home}")
        return runs[0]
    exact_matches = [run for run in runs if word in (run.name, run.id)]
    matches = exact_matches or [
        run for run in runs if word and (run.name.startswith(word) or run.id.startswith(word))
    ]
    names = list(dict.fromkeys(run.name for run in matches))
    if len(names) > 1:
        raise UserError("is the beginning of several names", key="NAME", found=word, allowed=names)
    if not matches:
        hint = did_you_mean(word, {run.name for run in runs})
        allowed = f"a name of `mlcl list`, {LAST}"
        raise UserError(
            f"no run, sweep or table has this name{hint}", key="NAME", found=word, allowed=allowed
        )
    return matches[0]


def trial_keys(context: typer.Context, incomplete: str) -> list[str]:
    """Completes a key that the trials of the named sweep set."""
    from mlcl.config import flatten
    from mlcl.results.documents import local_sweep

    try:
        trials = local_sweep(local_run(home_in_shell(), str(context.params.get("sweep"))).folder).trials
    except (UserError, OSError):
        return []
    return match_beginning(incomplete, (key for trial in trials for key in flatten(trial.settings)))


def _folder_kind(folder: RunFolder) -> str:
    return folder.path.parent.name.removesuffix("s")


def _read_run(home: Path, folder: RunFolder, record: RunRecord) -> LocalRun:
    kind, state = _folder_kind(folder), str(record.state)
    if record.state is State.RUNNING and not folder.is_owned:
        state = "KILLED"
    best = ""
    with suppress(OSError, ValueError, LookupError, TypeError):
        best = _format_best(kind, folder.path, first_entry(log_folder(home, record.log) / LOG))
    return LocalRun(kind, record.id, record.name or record.id, state, record.created, folder.path, best)


def _format_best(kind: str, folder: Path, log: dict[str, Any]) -> str:
    """Returns the main metric as text; if there is none yet, raises an error that `_read_run` suppresses."""
    file = folder / {"run": "result.json", "sweep": SWEEP_JSON, "table": TABLE_JSON}[kind]
    tree = text_json.loads(file.read_text(encoding="utf-8"))
    if kind == "run":
        metric = log["params"]["evaluation.metric"]
        return f"{metric} {tree[metric]:.4f}"
    if kind == "sweep":
        (score,) = (trial["score"] for trial in tree["trials"] if trial["label"] == tree["best"])
        return f"{tree['score']} {score:.4f}"
    figures = [figure for cell in tree["cells"] for figure in cell["figures"]]
    return f"{sum(None not in figure['values'] for figure in figures)} of {len(figures)} figures"
