"""What a table costs before it is run: trainings, steps, and hours where earlier runs tell."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from mlcl.config import dump_job
from mlcl.data import EpochSampler
from mlcl.service.budget import amount_text
from mlcl.service.folders import RunFolder
from mlcl.service.reproduce.plan import Key, TablePlan, TableRun, check_table, finished
from mlcl.tracking import shown, tracking_uri
from mlcl.tracking.lines import decode, read_lines
from mlcl.tracking.log import LOG, log_folder
from mlcl.training.material import Material

TIMES = ("time/train_seconds", "time/evaluation_seconds")


def plan_table(plan: TablePlan, home: Path) -> dict[str, Any]:
    """The plan of a table. Checks everything; prepares data sets where that has not been done."""
    runs = check_table(plan, home)
    done = finished(home)
    samples = _Samples(home)
    rows = {run.key: _rows(run, samples(run)) for run in runs}
    rates = _rates(runs, rows, done, home)
    missing = [run for run in runs if run.key not in done]
    seconds = [rates.get(_kind(run), math.nan) * rows[run.key] for run in missing]
    total = math.fsum(seconds)
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
            "all": len(runs),
            "done": len(runs) - len(missing),
            "missing": len(missing),
            "epochs": sum(run.job.train.epochs for run in missing),
            "rows_to_encode": sum(rows[run.key] for run in missing),
            "share": {"cpus": plan.cpus, "gpus": plan.gpus, "workers": runs[0].job.train.workers},
            "time_one_at_a_time": "not known before the first of each kind"
            if math.isnan(total)
            else amount_text(total, "clock"),
        },
        "writes": {
            "folder": str(home / "tables" / "<table id>"),
            "files": ["run.json", "table.md", "table.tex", "table.json"],
            "runs": str(home / "runs" / "<run id>"),
            "tracking": shown(tracking_uri(home)),
        },
    }


def _rows(run: TableRun, samples: int) -> int:
    """Rows that the training encodes: samples, views and epochs."""
    train = run.job.train
    sampler = EpochSampler(samples, train.batch_size, train.seed, drop_last=train.drop_last)
    whole = sampler.steps_per_epoch * train.batch_size
    return train.epochs * min(samples, whole) * train.views


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
            self._known[name] = len(Material.of(run.job, self._home, verify=False).train)
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
