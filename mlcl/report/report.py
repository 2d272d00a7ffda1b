"""Makes the report of a sweep, table or run from MLflow, and logs it to its run, with a note."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from mlflow.entities import Run

from mlcl.config.safe_yaml import dump_yaml
from mlcl.files import lock_folder
from mlcl.report.document import (
    Code,
    Details,
    Document,
    ReportCell,
    ReportSection,
    ReportTable,
    data_sections,
    number_cell,
    plot_blocks,
    provenance_table,
    text_row,
)
from mlcl.report.embedding_plots import (
    DEFAULTS,
    MOST_SETTINGS,
    EmbeddingOptions,
    EmbeddingPlots,
    embedding_plots,
)
from mlcl.report.plots.charts import build_plots
from mlcl.report.plots.learning_curves import confirmation_plots, learning_plot
from mlcl.report.plots.search_plots import search_plots
from mlcl.report.report_files import PAGE, blocks_as_markdown, report_folder, write_report
from mlcl.report.sweep_data import SweepData, setting_to_use
from mlcl.report.sweep_document import sweep_document
from mlcl.report.table_document import table_document
from mlcl.report.table_plots import group_plots
from mlcl.results.documents import read_sweep, read_table
from mlcl.results.provenance import data_notes, provenance_of
from mlcl.results.runs import GROUPS, Runs, kind
from mlcl.significance.roles import by_split
from mlcl.tracking import without_derived
from mlcl.tracking.names import Tag
from mlcl.tracking.shared_view import CLASSIC, NOTE_BEGIN, view_note
from mlcl.tracking.tracker import replace_artifacts
from mlcl.tracking.uri import pages_address

ARTIFACT, REPORTS = "report", "reports"
"""The name of a report's artifact, and of the folder of all reports in the home."""
END = "Written by `mlcl report`."
"""The last line of every note that is written here; a note that ends otherwise is a user's and is kept."""
MOST = 4500
"""The largest number of characters of a note, since MLflow limits the length of tags."""


@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    `plots` are the names of its plots, `missing` the (name, reason) of each that could not be drawn,
    `conclusions` the verdicts as sentences; `logged` says whether it was logged to its run, `run_id`, as an
    artifact.
    """

    folder: Path
    run_id: str
    logged: bool
    plots: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    conclusions: tuple[str, ...]

    @property
    def page(self) -> Path:
        """The path of the report's HTML page."""
        return self.folder / PAGE


def make_report(
    runs: Runs,
    word: str,
    home: Path,
    *,
    folder: Path | None = None,
    server: str | None = None,
    embeddings: EmbeddingOptions = DEFAULTS,
    log: bool = True,
    announce: Callable[[str], None] = lambda _: None,
) -> WrittenReport:
    """Makes the report of a sweep, table or run; for a training the report of its sweep or table.

    Args:
        runs: The tracking store.
        word: The name or id of a sweep or table, or the id of a run or training.
        home: The folder of local runs.
        folder: The folder to write to. Default: `HOME/reports/ID`.
        server: The address of MLflow's pages for links. Default: that of the tracking store.
        embeddings: The options of the plots of embeddings.
        log: Whether the report is logged to the run as an artifact, with a note.
        announce: Called with messages for the user.

    Raises:
        UserError: The sweep, class or row is unknown, the sweep's artifacts are gone, or `folder` has other
            files.
    """
    group = _find_run(runs, word)
    link = partial(run_link, server or pages_address(runs.tracker.uri), str(group.info.experiment_id))
    timestamp = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    folder = report_folder(folder or home / REPORTS / group.data.tags[Tag.ID])
    with embedding_plots(runs, home, announce, embeddings) as draw_embeddings:
        build_document = {"sweep": _sweep_report, "table": _table_report}.get(kind(group), _run_report)
        document = build_document(runs, group, draw_embeddings)
        with lock_folder(folder, home / REPORTS):
            write_report(document, folder, link, timestamp)
    if log:
        replace_artifacts(runs.tracker, str(group.info.run_id), folder, ARTIFACT)
        write_note(runs, group, document, link)
    names = tuple(plot.name for plot in document.plots)
    return WrittenReport(folder, str(group.info.run_id), log, names, document.missing, document.conclusions)


def _find_run(runs: Runs, word: str) -> Run:
    """Returns the sweep, table, or outermost parent of the run that `word` names; UserError for none."""
    group = runs.group(word)
    if group is not None:
        return group
    matches = runs.find_named(word)
    if not matches:
        return runs.require_group(word)  # raises UserError, which suggests a similar name
    run = matches[0]
    while (parent := runs.get(run.data.tags.get(Tag.PARENT, ""))) is not None:
        run = parent
    return run


def _sweep_report(runs: Runs, group: Run, draw_embeddings: EmbeddingPlots) -> Document:
    sweep = SweepData.of(read_sweep(runs, group), runs.history)
    setting = setting_to_use(sweep)
    complete_runs = sweep.complete_runs
    # Embeddings are drawn of the setting to use, then of others; without fresh seeds, of the best trial.
    names = sorted(complete_runs, key=lambda name: name != setting)[:MOST_SETTINGS]
    with ThreadPoolExecutor(max_workers=1) as executor:  # t-SNE releases Python's lock
        embeddings = executor.submit(draw_embeddings, {name: complete_runs[name] for name in names})
        collections = (search_plots(sweep), confirmation_plots(sweep), embeddings.result())
    plots = [plot for drawn_plots, _ in collections for plot in drawn_plots]
    missing = [reason for _, reasons in collections for reason in reasons]
    return sweep_document(sweep, setting, (plots, missing), draw_embeddings.knn, runs.tracker.shown)


def _table_report(runs: Runs, group: Run, draw_embeddings: EmbeddingPlots) -> Document:
    table = read_table(runs, group)
    return table_document(table, group_plots(table, draw_embeddings, runs.history), runs.tracker.shown)


def _run_report(runs: Runs, run: Run, draw_embeddings: EmbeddingPlots) -> Document:
    """Returns the report of a single run, with its metrics, learning curve, embeddings and provenance."""
    run_id, tags = str(run.info.run_id), run.data.tags
    metric = run.data.params.get("evaluation.metric", "")
    name = str(tags.get(Tag.ID, run_id))
    curves, skipped = build_plots({"learning": lambda: learning_plot(metric, {name: [run_id]}, runs.history)})
    pictures, missing = draw_embeddings({name: [run_id]})
    knn = draw_embeddings.knn.get(name)
    sentences = [f"{metric} {run.data.metrics[metric]:.4f}."] if metric in run.data.metrics else []
    sentences += [f"The best neighbours on validation: {knn}."] if knn else []
    params = dict(sorted(without_derived(run.data.params).items()))
    sections = (
        ReportSection("Result", (*sentences, _metrics_table(run))),
        ReportSection("Plots", plot_blocks([*curves, *pictures], [*skipped, *missing])),
        ReportSection("What was asked", (Details("The job", (Code(dump_yaml(params)),)),)),
        *data_sections(data_notes([tags])),
        ReportSection(
            "Where it comes from", (provenance_table(provenance_of(tags, []), run_id, runs.tracker.shown),)
        ),
    )
    about = f"Run {name}, {tags.get(Tag.STATE, '')}, seed {tags.get(Tag.SEED, '')}"
    return Document(f"Run of {tags.get(Tag.DATA, 'its data')}", about, sections, (*skipped, *missing))


def _metrics_table(run: Run) -> ReportTable:
    """Returns a table with one row for each metric, and columns for its values on validation and test."""
    split_metrics = by_split(run.data.metrics)
    if not split_metrics:
        return ReportTable(("metric",), tuple(text_row(name) for name in sorted(run.data.metrics)))
    rows = []
    for name, metric_names in split_metrics.items():
        metrics = [metric_names.get(split, "") for split in ("val", "test")]
        ids = [str(run.info.run_id)]
        rows.append((ReportCell(name), *(number_cell(run.data.metrics.get(m), m, ids) for m in metrics)))
    return ReportTable(("metric", "validation", "test"), tuple(rows))


def run_link(server: str, experiment_id: str, run_id: str) -> str:
    """Returns the URL of a run's page in MLflow; `run_id` may have a path appended, such as an artifact's."""
    return f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}?{CLASSIC}"


def write_note(runs: Runs, group: Run, document: Document, link: Callable[[str], str]) -> None:
    """Sets the description of the run `group` to a summary of the report, unless a user wrote one."""
    old_note = str(group.data.tags.get(Tag.NOTE, ""))
    if old_note and not old_note.endswith(END) and not old_note.startswith(NOTE_BEGIN):
        return
    page = f"[The report]({link(f'{group.info.run_id}/artifacts/report/{PAGE}')})"
    if kind(group) in GROUPS:
        page = f"{page}. {view_note(str(group.info.experiment_id), group.data.tags[Tag.ID])}"
    paragraphs = blocks_as_markdown(document.sections[0].blocks, link)
    # A paragraph that ends with a colon introduces a table, and is dropped together with it.
    while paragraphs and (len("\n\n".join([page, *paragraphs, END])) > MOST or paragraphs[-1].endswith(":")):
        paragraphs.pop()
    runs.tracker.client.set_tag(group.info.run_id, Tag.NOTE, "\n\n".join([page, *paragraphs, END]))
