"""Writes a table's log for MLflow, and its files: Markdown, LaTeX, JSON, and Parquet of its trainings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mlcl.config import dump_job, flatten
from mlcl.config.table.schema import slug
from mlcl.errors import UserError
from mlcl.files import new_file, replace_text
from mlcl.results.documents import document, write_result
from mlcl.results.provenance import Tags
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import label_in
from mlcl.results.training_result import training_folder
from mlcl.service.engine.closing import log_id
from mlcl.service.engine.command import Command
from mlcl.service.engine.entries import Entry
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables.origin import check_origins, commit_of
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.rendering import latex, markdown
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.tracking import RunLog
from mlcl.tracking.names import TABLE_JSON, TABLE_LATEX, TABLE_MARKDOWN, TABLE_TRIALS, Tag
from mlcl.tracking.params import short_name
from mlcl.tracking.shared_view import cells_view
from mlcl.training.row_predictions import PREDICTIONS

FORMAT = 1
"""The version of the format of the cells' JSON files."""


def start_log(plan: TablePlan, command: Command) -> RunLog:
    """Starts or continues the log of a table. In MLflow the runs of the trainings are nested in its run."""
    record, logs = command.record, command.logs
    params = {"table": plan.file.stem, "scale": plan.scale or "paper"}
    tags: dict[str, str] = {Tag.SOURCE: plan.table.source, Tag.COMMAND: plan.command}
    log = logs.start_group("table", record, params, tags)
    figures = (figure for cell in plan.cells for figure in cell.figures)
    metrics = {figure.metric: plan.table.is_better_higher(figure.name) for figure in figures}
    log.log_view(record.id, cells_view(metrics, _differing_keys(plan)))
    logs.deliver(log.id)
    return log


def write_files(report: TableResult, log: RunLog) -> None:
    """Writes the files of a table into its folder, and logs them together with the means."""
    for name, text in ((TABLE_MARKDOWN, markdown(report)), (TABLE_LATEX, latex(report))):
        replace_text(report.folder / name, text)
    write_result(report)
    log.log_artifacts([report.folder / name for name in (TABLE_MARKDOWN, TABLE_LATEX, TABLE_JSON)])
    run_count = sum(run is not None for cell in report.cells for run in cell.runs)
    log.log_final_metrics(_figure_metrics(report), step=run_count)
    if report.limits:
        limits = ", ".join(f"{name} {limit:g}" for name, limit in report.limits.items())
        log.log_tags({Tag.OUTSIDE: str(len(report.outside)), Tag.TOLERANCE: limits})


def check_folder(folder: Path) -> None:
    """Raises UserError if `write_cells` cannot create the folder, since it or a parent of it is a file."""
    if not next(path for path in (folder, *folder.absolute().parents) if path.exists()).is_dir():
        raise UserError("not a folder", key="--figures", found=folder)


def write_cells(report: TableResult, folder: Path, plan: TablePlan) -> list[Path]:
    """Writes the file `ROW/COLUMN.json` of each cell without missing values, and returns the files.

    The files are for publication: they have neither the parameters, which contain paths of this machine, nor
    the trainings. Raises UserError if the table is `clean` and a cell's training ran code that was not
    committed.
    """
    whole_cells = [
        cell for cell in report.cells if all(figure.verdict != "missing" for figure in cell.figures)
    ]
    if plan.table.clean:
        check_origins(whole_cells, plan.file)
    files = []
    head = {"format": FORMAT, "table": report.name, "title": report.title, "unit": report.unit}
    for cell, tree in zip(report.cells, document(report)["cells"], strict=True):
        if cell not in whole_cells:
            continue
        higher = {figure.name: report.higher[figure.name] for figure in cell.figures}
        file = folder / f"{cell.id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {key: value for key, value in tree.items() if key not in ("params", "trainings")}
        content["verdicts"] = [
            {"cells": shared_name, **verdict.as_dict()}
            for shared_name, verdict in report.verdicts
            if shared_name in ("", cell.row, cell.column)
            and verdict.treated.label == label_in(cell, shared_name)
        ]
        replace_text(file, json.dumps({**head, "higher": higher, **content}, indent=1, default=str) + "\n")
        files.append(file)
    return files


def _differing_keys(plan: TablePlan) -> list[str]:
    """Returns the job keys in which the cells differ, those with a short name first."""
    jobs = [flatten(dump_job(cell.jobs[0])) for cell in plan.cells]
    keys = dict.fromkeys(key for job in jobs for key in job)
    differing_keys = (key for key in keys if len({str(job.get(key)) for job in jobs}) > 1)
    return sorted(differing_keys, key=lambda key: short_name(key) is None)


def _figure_metrics(report: TableResult) -> dict[str, float]:
    """Returns the means and the printed values (`NAME/printed`) under names that MLflow accepts."""
    values: dict[str, float] = {}
    for cell in report.cells:
        for figure in cell.figures:
            name = f"{cell.id}/{slug(figure.name)}".replace("+", "plus")  # MLflow takes no plus sign
            if figure.mean is not None:
                values[name] = figure.mean
            if figure.printed is not None:
                values[f"{name}/printed"] = figure.printed
    return values


TEXT = pa.string()
SCHEMA = pa.schema(
    {
        "table": TEXT,
        "row": TEXT,
        "column": TEXT,
        "data": TEXT,
        "search": pa.int64(),
        "stage": TEXT,
        "number": pa.int64(),
        "seed": pa.int64(),
        "state": TEXT,
        "reason": TEXT,
        "settings": TEXT,
        "epochs": pa.list_(pa.int64()),
        "intermediate": pa.list_(pa.float64()),
        "score": pa.float64(),
        "metrics": pa.map_(TEXT, pa.float64()),
        "seconds": pa.float64(),
        "commit": TEXT,
        "predictions": TEXT,
    }
)
"""The columns of the file, one row per training. `settings` is JSON, since the keys of a space differ between
cells and their values are numbers, texts or lists. `commit` is that of the code that trained, with a `+` for
uncommitted changes; `predictions` is the file of the test predictions, relative to the home."""


def write_trials(
    report: TableResult, searches: Mapping[TunedCell, Ledger], tags: Callable[[str], Tags]
) -> None:
    """Writes all ended trainings of tuned cells to a Parquet file, whose metadata have all commits."""
    rows = [
        {"table": report.name, **row}
        for cell, ledger in searches.items()
        for row in _training_rows(cell, ledger, tags)
    ]
    commits = sorted({row["commit"] for row in rows})
    clean = bool(commits) and all(commit and not commit.endswith("+") for commit in commits)
    metadata = {
        "table": report.name,
        "id": report.id,
        "commit": ", ".join(commits),
        "clean": str(clean).lower(),
    }
    table = pa.Table.from_pylist(
        rows, SCHEMA.with_metadata({f"mlcl.{key}": value for key, value in metadata.items()})
    )
    with new_file(report.folder / TABLE_TRIALS) as path:
        pq.write_table(table, path, compression="zstd")


def _training_rows(cell: TunedCell, ledger: Ledger, tags: Callable[[str], Tags]) -> Iterator[dict[str, Any]]:
    for search in cell.searches(ledger):
        stages = {"search": search.trials, "race": search.race_trainings, "confirmation": search.seeds}
        for stage, entries in stages.items():
            for entry in entries:
                if entry.ended:
                    place = {"row": cell.cell.row, "column": cell.cell.column, "data": cell.data.fingerprint}
                    yield {
                        **place,
                        "search": search.search.number,
                        "stage": stage,
                        **_training_row(entry, ledger, tags),
                    }


def _training_row(entry: Entry, ledger: Ledger, tags: Callable[[str], Tags]) -> dict[str, Any]:
    folder = ledger.folder
    predictions = training_folder(folder, entry.key) / PREDICTIONS
    return {
        "number": entry.number,
        "seed": entry.job["train"]["seed"],
        "state": str(entry.state),
        "reason": entry.reason,
        "settings": json.dumps({**entry.settings, **entry.chosen}),
        "epochs": [epoch for epoch, _ in entry.intermediate],
        "intermediate": [score for _, score in entry.intermediate],
        "score": entry.score,
        "metrics": list(entry.metrics.items()),
        "seconds": entry.cost.seconds,
        "commit": commit_of(tags(log_id(folder.name, entry.key))),
        "predictions": str(predictions.relative_to(folder.parents[1])) if predictions.is_file() else None,
    }
