"""The cost of a table before it is run: trainings, epochs, and hours estimated from earlier runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job
from mlcl.samplers import EpochSampler
from mlcl.service.engine.budget import amount_text
from mlcl.service.engine.encoding import forecast, forecast_text
from mlcl.service.engine.entries import Entry, Unit
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables.origin import without_empty
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.trainings import Key, TableRun, TableTrainings, find_complete_runs
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder
from mlcl.tracking import hide_password, tracking_uri
from mlcl.tracking.log import LOG, decode, log_folder, read_lines
from mlcl.tracking.names import TABLE_JSON, TABLE_LATEX, TABLE_MARKDOWN, TABLE_TRIALS
from mlcl.training.events import TIMES
from mlcl.training.job_data import JobData

UNKNOWN = "not known before the first of each kind"


@dataclass(frozen=True)
class _Estimate:
    """The estimated cost of a run: the number of rows that it encodes, and the seconds that it takes.

    The seconds are nan if no run of its `kind`, with the same encoder and data, has ended.
    """

    run: TableRun
    kind: str
    rows: int
    seconds: float


def plan_table(plan: TablePlan, home: Path) -> dict[str, Any]:
    """Returns the plan of a table, with its cost, as plain data. Checks and prepares data, trains nothing."""
    table, folders = TableTrainings(plan, home), find_complete_runs(home)
    keys = {run.key for run in table.missing_runs()}
    estimates = [estimate for estimate in _estimates(table.runs, folders, home) if estimate.run.key in keys]
    folder = table.folder()
    ledgers = table.ledgers(None if folder is None else Ledger(folder.path))
    entries = [
        entry for ledger in (table.all_ledgers if table.tuned else ()) for entry in ledger.entries.values()
    ]
    trainings = [entry for entry in entries if entry.scope and entry.ended]
    searches, seconds = {}, [estimate.seconds for estimate in estimates]
    for cell, ledger in ledgers.items():
        count = cell.count_left(ledger)
        times = [_mean_seconds(cell, trainings)] * count
        seconds += times
        searches[cell.cell.id] = {**cell.cost, "left": count, "time_one_at_a_time": _sum_text(times, "clock")}
    missing_count, job = table.count_left(ledgers), plan.cells[0].jobs[0]
    jobs = [estimate.run.job for estimate in estimates] + [job for cell in table.tuned for job in cell.jobs]
    figures = [figure.name for cell in plan.cells for figure in cell.figures]
    return {
        "table": {
            "name": plan.name,
            "title": plan.table.title,
            "source": plan.table.source,
            "about": plan.about,
            "tolerance": {name: plan.tolerance(name) for name in figures},
        },
        "cells": {
            cell.id: {
                "seeds": len(cell.jobs),
                "printed": {figure.name: figure.printed for figure in cell.figures},
            }
            for cell in plan.cells
        },
        "trainings": {
            "all": table.count,
            "done": table.count - missing_count,
            "missing": missing_count,
            **_sum_estimates(estimates),
            "time_one_at_a_time": _sum_text(seconds, "clock"),
            "frozen_inputs": forecast_text(forecast(jobs, home, plan.resources.gpus)),
            "cpu_time": _sum_text(
                [value * plan.resources.cpus * job.train.workers for value in seconds], "cpu"
            ),
            "kinds": _kind_summaries(estimates),
            **({"tuned": searches} if searches else {}),
            "share": {
                "cpus": plan.resources.cpus,
                "gpus": "one where there are any" if plan.resources.gpus is None else plan.resources.gpus,
                "workers": job.train.workers,
            },
        },
        "writes": {
            "folder": str(home / "tables" / "<table id>"),
            "files": [TABLE_MARKDOWN, TABLE_LATEX, TABLE_JSON, *([TABLE_TRIALS] if table.tuned else [])],
            "runs": str(home / "runs" / "<run id>"),
            "tracking": hide_password(tracking_uri(home)),
        },
    }


def _estimates(runs: Sequence[TableRun], folders: Mapping[Key, RunFolder], home: Path) -> Iterator[_Estimate]:
    """Yields each run's estimated cost, from the median time per row of runs with its encoder and data."""
    samples: dict[str, int] = {}  # opening the data takes a while, and most runs are on equal rows
    rows: dict[Key, int] = {}
    rates: dict[str, list[float]] = {}
    for run in runs:
        subset = run.job.data.subset
        size = None if subset is None else (subset.n, subset.per_class, subset.labels)
        split = f"{run.data.fingerprint} {size} {run.job.objective.classifier.labels}"
        if split not in samples:
            samples[split] = len(JobData.of(run.job, home, verify=False).train)
        rows[run.key] = _count_rows(run.job, samples[split])
        if run.key in folders and (seconds := _run_seconds(home, folders[run.key])) is not None:
            rates.setdefault(_run_kind(run), []).append(seconds / rows[run.key])
    for run in runs:
        kind, count = _run_kind(run), rows[run.key]
        yield _Estimate(run, kind, count, statistics.median(rates.get(kind, [math.nan])) * count)


def _run_kind(run: TableRun) -> str:
    return f"{run.job.baseline} {dump_job(run.job)['encoder']} {run.data.name}"


def _count_rows(job: JobConfig, samples: int) -> int:
    """Returns the number of rows that a training encodes: samples times views times epochs.

    A fitted baseline reads each sample once.
    """
    train = job.train
    if job.baseline is not None:
        return samples
    sampler = EpochSampler(samples, train.batch_size, train.seed, drop_last=train.drop_last)
    epoch_samples = sampler.steps_per_epoch * train.batch_size
    return train.epochs * min(samples, epoch_samples) * job.views


def _run_seconds(home: Path, folder: RunFolder) -> float | None:
    """Returns the duration of a finished run in seconds, read from its log; None if it is not there."""
    record, values = folder.record, dict[str, float]()
    if record is None:
        return None
    for line, _ in read_lines(log_folder(home, record.log) / LOG):
        if any(name.encode() in line for name in TIMES):
            values |= decode(line).get("values", {})
    return math.fsum(values[name] for name in TIMES) if all(name in values for name in TIMES) else None


def _mean_seconds(cell: TunedCell, trainings: Sequence[Entry]) -> float:
    """Returns the mean seconds of comparable trainings, nan without any; pruned ones are included.

    Comparable are those of `trainings` with the cell's data and labels; among them, if there are any,
    those with as many heads, and then those of the cell's own searches.
    """
    job = dump_job(cell.cell.jobs[0])
    peers = [entry for entry in trainings if _task_key(entry.job) == _task_key(job)]
    heads = len(job["objective"]["heads"])
    peers = [entry for entry in peers if len(entry.job["objective"]["heads"]) == heads] or peers
    peers = [entry for entry in peers if entry.scope in cell.scopes] or peers
    return statistics.fmean(entry.cost.seconds for entry in peers) if peers else math.nan


def _task_key(job: Mapping[str, Any]) -> tuple[Any, str]:
    return without_empty(job["data"]), job["objective"]["classifier"]["labels"]


def _sum_estimates(estimates: Sequence[_Estimate]) -> dict[str, Any]:
    """Returns the total epochs, rows and time of runs. Early stopping on validation may make them fewer."""
    return {
        "epochs": sum(estimate.run.job.epochs for estimate in estimates),
        "rows_to_encode": sum(estimate.rows for estimate in estimates),
        "time_one_at_a_time": _sum_text([estimate.seconds for estimate in estimates], "clock"),
    }


def _sum_text(seconds: Sequence[float], unit: Unit) -> str:
    """Formats the sum of the seconds of trainings, with the number of trainings whose seconds are nan."""
    known_seconds = [value for value in seconds if not math.isnan(value)]
    if seconds and not known_seconds:
        return UNKNOWN
    unknown_count = len(seconds) - len(known_seconds)
    text = amount_text(math.fsum(known_seconds), unit)
    return text if not unknown_count else f"{text}, without {unknown_count:,} trainings of unknown time"


def _kind_summaries(estimates: Sequence[_Estimate]) -> list[dict[str, Any]]:
    kinds: dict[str, list[_Estimate]] = {}
    for estimate in estimates:
        kinds.setdefault(estimate.kind, []).append(estimate)
    return [
        {
            "encoder": _encoder_text(group[0].run.job),
            "data": group[0].run.data.name,
            "trainings": len(group),
            **_sum_estimates(group),
        }
        for group in kinds.values()
    ]


def _encoder_text(job: JobConfig) -> str:
    """Returns the name of the encoder with the size of its inputs, on which the time per row depends.

    Of a fitted baseline it is the baseline's name.
    """
    if job.baseline is not None:
        return job.baseline
    encoder = dump_job(job)["encoder"]
    units = {"max_length": "tokens", "image_size": "pixels"}
    sizes = [f"{encoder[key]:,} {unit}" for key, unit in units.items() if key in encoder]
    return ", ".join([" ".join(filter(None, (encoder["name"], encoder.get("model")))), *sizes])
