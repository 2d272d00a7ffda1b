"""Builds the tables of a sweep's report: confirmed settings, trials, metrics and hours."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from mlcl.report.document import ReportCell, ReportTable, number_cell, text_row, value_text
from mlcl.report.sweep_data import SweepData
from mlcl.results.frame import COSTS
from mlcl.store import State

TEST = "test/"
HOURS = 3600


def settings_table(
    confirmation: pd.DataFrame, metrics: Sequence[str], groups: Mapping[str, str]
) -> ReportTable:
    """Returns a table of the settings, linked to their runs in `groups`, with means and deviations."""
    complete = confirmation[confirmation["state"] == State.COMPLETE]
    rows = []
    for setting in map(str, dict.fromkeys(confirmation["setting"])):
        runs = complete[complete["setting"] == setting]
        figures = (cell for metric in metrics for cell in mean_and_spread(runs, metric))
        rows.append((ReportCell(setting, groups.get(setting, "")), ReportCell(str(len(runs))), *figures))
    return ReportTable(("setting", "seeds", *_add_spread_heads(metrics)), tuple(rows))


def _add_spread_heads(names: Sequence[str]) -> list[str]:
    return [head for name in names for head in (name, "± sd")]


def mean_and_spread(runs: pd.DataFrame, metric: str) -> list[ReportCell]:
    """Returns two cells, mean and sample standard deviation of a metric; empty where there is no value."""
    rows = runs[runs[metric].notna()] if metric in runs else runs.iloc[:0]
    values, ids = [float(value) for value in rows.get(metric, [])], list(rows["run_id"])
    mean = statistics.fmean(values) if values else None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return [number_cell(mean, metric, ids, "mean"), number_cell(deviation, metric, ids, "sd")]


def seeds_table(confirmation: pd.DataFrame, metrics: Sequence[str]) -> ReportTable:
    """Returns a table with one row for each setting and seed, linked to its run."""
    rows = []
    for _, run in confirmation.iterrows():
        seed = ReportCell(str(run["seed"]), run["run_id"])
        cells = (ReportCell(str(run["setting"])), seed, ReportCell(run["state"]))
        rows.append((*cells, *(run_figure(run, metric) for metric in metrics)))
    return ReportTable(("setting", "seed", "state", *metrics), tuple(rows), left=(0, 2))


def trials_table(
    search: pd.DataFrame, score: str, goals: Sequence[str], settings: Sequence[str]
) -> ReportTable:
    """Returns a table of search trials: state, score, metrics `goals` and job keys `settings`."""
    rows = []
    for _, run in search.iterrows():
        cells = [ReportCell(str(run["setting"]), run["run_id"]), ReportCell(run["state"])]
        cells += [run_figure(run, "score", score), *(run_figure(run, goal) for goal in goals)]
        rows.append((*cells, *(ReportCell(value_text(run[key])) for key in settings)))
    names = [key.removeprefix("objective.heads.").removeprefix("evaluation.") for key in settings]
    return ReportTable(("trial", "state", score, *goals, *names), tuple(rows), left=(0, 1))


def metrics_table(confirmation: pd.DataFrame) -> ReportTable:
    """Returns a table of all test metrics: a row for each metric; mean and deviation for each setting."""
    complete = confirmation[confirmation["state"] == State.COMPLETE]
    names = [name for name in complete.columns if TEST in name and complete[name].notna().any()]
    settings = {str(setting): runs for setting, runs in complete.groupby("setting", sort=False)}
    rows = [
        (ReportCell(name), *(cell for runs in settings.values() for cell in mean_and_spread(runs, name)))
        for name in names
    ]
    return ReportTable(("metric", *_add_spread_heads(list(settings))), tuple(rows))


def run_figure(run: pd.Series, column: str, metric: str = "") -> ReportCell:
    """Returns a cell with a run's value in a column, empty for NA; `metric` names that in column `score`."""
    value = run.get(column)
    number = None if pd.isna(value) else value
    return number_cell(number, column, [run["run_id"]], statistic=metric and f"score: {metric}")


def budget_table(data: SweepData) -> ReportTable:
    """Returns a table of trainings and hours: search trials by state, races, confirmed settings, and all."""
    parts = list(_parts(data))
    all_runs = pd.concat([runs for _, runs in parts]) if parts else data.search
    heads = ("part", "trainings", "hours", "cpu-h", "gpu-h", "hours each")
    return ReportTable(heads, tuple(_cost_row(part, runs) for part, runs in [*parts, ("all", all_runs)]))


def _parts(data: SweepData) -> Iterator[tuple[str, pd.DataFrame]]:
    search, confirmation = data.search, data.confirmation
    for state in dict.fromkeys(search["state"]):
        yield f"search, {state}", search[search["state"] == state]
    if len(data.dropped):
        yield "search, of an earlier space", data.dropped
    for state in dict.fromkeys(data.baselines["state"]):
        yield f"search of baselines, {state}", data.baselines[data.baselines["state"] == state]
    if len(data.races):
        yield "races", data.races
    for setting in dict.fromkeys(confirmation["setting"]):
        yield f"confirmation, {setting}", confirmation[confirmation["setting"] == setting]


def _cost_row(part: str, runs: pd.DataFrame) -> tuple[ReportCell, ...]:
    if not len(runs) or runs["seconds"].isna().any():
        return text_row(part, str(len(runs)), *[""] * 4)
    hours = [float(runs[name].sum()) / HOURS for name in COSTS]
    return text_row(part, str(len(runs)), *(f"{hour:.4f}" for hour in hours), f"{hours[0] / len(runs):.4f}")
