"""Describes what a sweep or a table found on fresh seeds about one of its models, for the model's card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcl.markup import format_count, markdown, markdown_table
from mlcl.results.compared_setting import SPLIT_SEED
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import label_in, sentences_of
from mlcl.results.training_result import TrainingResult
from mlcl.significance.arms import Arm, mean_interval
from mlcl.significance.paired_tests import LEVEL
from mlcl.significance.verdict import DIGITS
from mlcl.tracking import State


def model_evidence(result: SweepResult | TableResult, run_id: str) -> str:
    """Returns Markdown with the test metrics of a model's setting over its seeds, intervals, and verdicts.

    `run_id` is the MLflow id of the model's run. The Markdown is empty if there are neither metrics nor
    verdicts: a trial of a search, for example, has no fresh seeds.
    """
    if isinstance(result, SweepResult):
        kind, (label, searches), metrics = "sweep", _find_setting(result, run_id), None
        sentences = [verdict.sentence for verdict in result.verdicts]
    else:
        kind, (label, searches, metrics, sentences) = "table", _find_cell(result, run_id)
    parts = []
    rows = _figure_rows(searches, metrics)
    if rows:
        seeds = format_count(sum(map(len, searches)), "seed")
        heading = f"{markdown(label)} of the {kind} {markdown(result.name)}, {seeds}:"
        parts += [heading, markdown_table(("on test", "mean", f"{LEVEL:.0%} interval"), rows)]
    if sentences:
        bullets = "\n".join(f"- {markdown(sentence)}" for sentence in sentences)
        parts += [f"The {kind} {markdown(result.name)} says:", bullets]
    return "\n\n".join(["## On fresh seeds", *parts]) if parts else ""


Searches = Sequence[Sequence[TrainingResult]]
"""The complete trainings of each search."""


def _find_setting(sweep: SweepResult, run_id: str) -> tuple[str, Searches]:
    """Returns the label and the complete seeds of the confirmed setting that the run is a seed of."""
    for setting in sweep.settings:
        if any(seed.run_id == run_id for seed in setting.seeds):
            return setting.label or setting.name, _complete_trainings([setting.seeds])
    return "", ()


def _find_cell(table: TableResult, run_id: str) -> tuple[str, Searches, list[str], list[str]]:
    """Returns the label, complete trainings, metrics and verdicts of the cell that the run belongs to."""
    for cell in table.cells:
        if any(training.run_id == run_id for training in cell.trainings):
            cell_verdicts = [
                (shared, verdict)
                for shared, verdict in table.verdicts
                if label_in(cell, shared) in (verdict.treated.label, verdict.reference.label)
            ]
            metrics = [figure.metric for figure in cell.figures]
            searches = [
                [training for position in group if (training := cell.training(position))]
                for group in cell.searches
            ]
            return cell.label, _complete_trainings(searches), metrics, sentences_of(cell_verdicts)
    return "", (), [], []


def _complete_trainings(searches: Searches) -> Searches:
    complete = [[training for training in search if training.state is State.COMPLETE] for search in searches]
    return [search for search in complete if search]


def _figure_rows(searches: Searches, metrics: Sequence[str] | None) -> list[tuple[str, str, str]]:
    """Returns a row for each metric; `metrics` are by default all test metrics that every training has."""
    if not searches:
        return []
    seeds = [training for search in searches for training in search]
    splits_differ = any(SPLIT_SEED in training.changes for training in seeds)
    if metrics is None:
        metrics = [name for name in seeds[0].metrics if "test/" in name]
    rows = []
    for name in metrics:
        if all(name in training.metrics for training in seeds):
            outcomes = [[training.outcome(name) for training in search] for search in searches]
            if splits_differ:
                outcomes = [[replace(outcome, blocks=()) for outcome in search] for search in outcomes]
            arm = Arm(name, tuple(map(tuple, outcomes)))
            if arm.complete:
                mean, interval = mean_interval(arm, LEVEL)
                ends = "" if interval is None else " to ".join(f"{end:.{DIGITS}f}" for end in interval)
                rows.append((markdown(name), f"{mean:.{DIGITS}f}", ends))
    return rows
