"""What a table costs before it is run: trainings, steps, and hours where earlier runs tell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job
from mlcl.data import EpochSampler
from mlcl.service.engine.budget import amount_text
from mlcl.service.engine.entries import Entry, Unit
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables.origin import without_empty
from mlcl.service.tables.plan import Key, TablePlan, TableRun, check_table, finished, identity, known_folder
from mlcl.service.tables.tuned_cell import TableLedgers, TunedCell, tuned_cells
from mlcl.store import RunFolder
from mlcl.tracking import shown, tracking_uri
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.names import TABLE_JSON, TABLE_LATEX, TABLE_MARKDOWN
from mlcl.training.job_data import JobData

UNKNOWN = "not known before the first of each kind"
TIMES = ("time/train_seconds", "time/evaluation_seconds")


def plan_table(plan: TablePlan, home: Path) -> dict[str, Any]:
    """The plan of a table. Checks everything; prepares data sets where that has not been done."""
    runs, tuned = check_table(plan, home), tuned_cells(plan, home)
    done = finished(home)
    samples = _Samples(home)
    rows = {run.key: _rows(run, samples(run)) for run in runs}
    rates = _rates(runs, rows, done, home)
    missing = [run for run in runs if run.key not in done]
    known = known_folder(home, plan.name, identity(plan, runs, [each.identity for each in tuned]))
    ledger = None if known is None else Ledger(known.path)
    ledgers = TableLedgers(home)
    entries = [its for each in (ledgers.all if tuned else ()) for its in each.entries.values()]
    searched = [its for its in entries if its.scope and its.ended]
    searches = {each.cell.id: _search(each, ledgers.of(each, ledger), searched) for each in tuned}
    left = len(missing) + sum(search["left"] for search in searches.values())
    seconds = _all_seconds(missing, rows, rates)
    for search in searches.values():
        seconds += search.pop("seconds")
    cpus = plan.resources.cpus * plan.cells[0].jobs[0].train.workers
    count = len(runs) + sum(each.most for each in tuned)
    return {
        "table": {
            "name": plan.name,
            "title": plan.table.title,
            "source": plan.table.source,
            "about": plan.about,
            "tolerance": {
                figure.name: plan.tolerance(figure.name) for cell in plan.cells for figure in cell.figures
            },
        },
        "cells": {
            cell.id: {
                "seeds": len(cell.jobs),
                "printed": {figure.name: figure.printed for figure in cell.figures},
            }
            for cell in plan.cells
        },
        "trainings": {
            "all": count,
            "done": count - left,
            "missing": left,
            **_amount(missing, rows, rates),
            "time_one_at_a_time": _time(seconds, "clock"),
            "cpu_time": _time([each * cpus for each in seconds], "cpu"),
            "kinds": _kinds(missing, rows, rates),
            **({"tuned": searches} if tuned else {}),
            "share": {
                "cpus": plan.resources.cpus,
                "gpus": "one where there are any" if plan.resources.gpus is None else plan.resources.gpus,
                "workers": plan.cells[0].jobs[0].train.workers,
            },
        },
        "writes": {
            "folder": str(home / "tables" / "<table id>"),
            "files": [TABLE_MARKDOWN, TABLE_LATEX, TABLE_JSON],
            "runs": str(home / "runs" / "<run id>"),
            "tracking": shown(tracking_uri(home)),
        },
    }


def _amount(runs: Sequence[TableRun], rows: Mapping[Key, int], rates: Mapping[str, float]) -> dict[str, Any]:
    """Epochs, rows and hours of trainings; epochs are at most so many where validation may end one."""
    return {
        "epochs": sum(run.job.train.epochs for run in runs),
        "rows_to_encode": sum(rows[run.key] for run in runs),
        "time_one_at_a_time": _time(_all_seconds(runs, rows, rates), "clock"),
    }


def _all_seconds(
    runs: Sequence[TableRun], rows: Mapping[Key, int], rates: Mapping[str, float]
) -> list[float]:
    """How long each training takes; not a number where its kind was never run."""
    return [rates.get(_kind(run), math.nan) * rows[run.key] for run in runs]


def _time(seconds: Sequence[float], unit: Unit) -> str:
    """The sum over trainings, and how many of them it lacks."""
    known = [each for each in seconds if not math.isnan(each)]
    if seconds and not known:
        return UNKNOWN
    lacking = len(seconds) - len(known)
    text = amount_text(math.fsum(known), unit)
    return text if not lacking else f"{text}, without {lacking:,} trainings of unknown time"


def _search(tuned: TunedCell, ledger: Ledger | None, searched: Sequence[Entry]) -> dict[str, Any]:
    """What the search of a cell and its fresh seeds take; `seconds` for each training that is left.

    A training takes the mean of those that ended in searches of this cell, or else of those on its data and
    labels, with as many heads where there are any; those that were stopped early count with the time that
    they took.
    """
    left, job = tuned.left(ledger), dump_job(tuned.cell.jobs[0])
    near = [entry for entry in searched if _labelled(entry.job) == _labelled(job)]
    heads = len(job["objective"]["heads"])
    near = [entry for entry in near if len(entry.job["objective"]["heads"]) == heads] or near
    near = [entry for entry in near if entry.scope == tuned.scope] or near
    each = statistics.fmean(entry.cost.seconds for entry in near) if near else math.nan
    seconds = [each] * left
    return {**tuned.cost, "left": left, "time_one_at_a_time": _time(seconds, "clock"), "seconds": seconds}


def _labelled(job: Mapping[str, Any]) -> tuple[Any, str]:
    """What a job trains on, and what it classifies."""
    return without_empty(job["data"]), job["objective"]["classifier"]["labels"]


def _kinds(
    runs: Sequence[TableRun], rows: Mapping[Key, int], rates: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The same by kind: a row of one encoder is not a row of another."""
    kinds: dict[str, list[TableRun]] = {}
    for run in runs:
        kinds.setdefault(_kind(run), []).append(run)
    return [
        {
            "encoder": _encoder_text(its[0].job),
            "data": its[0].data.name,
            "trainings": len(its),
            **_amount(its, rows, rates),
        }
        for its in kinds.values()
    ]


def _encoder_text(job: JobConfig) -> str:
    """What of an encoder tells how long a row takes."""
    encoder = dump_job(job)["encoder"]
    units = {"max_length": "tokens", "image_size": "pixels"}
    sizes = [f"{encoder[key]:,} {unit}" for key, unit in units.items() if key in encoder]
    return ", ".join([" ".join(filter(None, (encoder["name"], encoder.get("model")))), *sizes])


def _rows(run: TableRun, samples: int) -> int:
    """Rows that the training encodes: samples, views and epochs."""
    train = run.job.train
    sampler = EpochSampler(samples, train.batch_size, train.seed, drop_last=train.drop_last)
    whole = sampler.steps_per_epoch * train.batch_size
    return train.epochs * min(samples, whole) * run.job.views


class _Samples:
    """How many samples runs train on. Opening the data takes a while, and seeds change no number."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known: dict[str, int] = {}

    def __call__(self, run: TableRun) -> int:
        subset = run.job.data.subset
        size = None if subset is None else (subset.n, subset.per_class, subset.labels)
        name = f"{run.data.fingerprint} {size} {run.job.objective.classifier.labels}"
        if name not in self._known:
            self._known[name] = len(JobData.of(run.job, self._home, verify=False).train)
        return self._known[name]


def _kind(run: TableRun) -> str:
    """Runs of one kind take equally long for a row: same encoder, same data."""
    return f"{dump_job(run.job)['encoder']} {run.data.name}"


def _rates(
    runs: list[TableRun], rows: dict[Key, int], done: dict[Key, RunFolder], home: Path
) -> dict[str, float]:
    """Seconds a row by kind, the median over the finished runs of this table."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if run.key in done:
            seconds = _seconds(home, done[run.key])
            if seconds is not None:
                found.setdefault(_kind(run), []).append(seconds / rows[run.key])
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def _seconds(home: Path, folder: RunFolder) -> float | None:
    """How long a finished run took, by its log."""
    record, values = folder.record, dict[str, float]()
    if record is None:
        return None
    for line, _ in read_lines(log_folder(home, record.log) / LOG, 0):
        if any(name.encode() in line for name in TIMES):
            values |= decode(line).get("values", {})
    return math.fsum(values[name] for name in TIMES) if all(name in values for name in TIMES) else None
