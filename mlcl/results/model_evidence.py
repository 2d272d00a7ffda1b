"""Describes what a sweep or a table found on fresh seeds about one of its models, for the model's card."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.markup import counted, markdown, markdown_table
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import label_in, sentences_of
from mlcl.results.training_result import TrainingResult
from mlcl.significance.arms import Arm, mean_interval
from mlcl.significance.paired_tests import LEVEL
from mlcl.tracking import State

DIGITS = 4


def model_evidence(result: SweepResult | TableResult, run_id: str) -> str:
    """Returns Markdown with the test metrics of a model's setting over its seeds, intervals, and verdicts.

    `run_id` is the MLflow id of the model's run. The Markdown is empty if there are neither metrics nor
    verdicts: a trial of a search, for example, has no fresh seeds.
    """
    if isinstance(result, SweepResult):
        what, (label, seeds), metrics = "sweep", _setting(result, run_id), None
        sentences = [its.sentence for its in result.verdicts]
    else:
        what, (label, seeds, metrics, sentences) = "table", _cell(result, run_id)
    parts = []
    rows = _figures(seeds, metrics)
    if rows:
        said = f"{markdown(label)} of the {what} {markdown(result.name)}, {counted(len(seeds), 'seed')}:"
        parts += [said, markdown_table(("on test", "mean", f"{LEVEL:.0%} interval"), rows)]
    if sentences:
        listed = "\n".join(f"- {markdown(sentence)}" for sentence in sentences)
        parts += [f"The {what} {markdown(result.name)} says:", listed]
    return "\n\n".join(["## On fresh seeds", *parts]) if parts else ""


def _setting(sweep: SweepResult, run_id: str) -> tuple[str, Sequence[TrainingResult]]:
    """Returns the label and the complete seeds of the confirmed setting that the run is a seed of."""
    for setting in sweep.settings:
        if any(seed.run_id == run_id for seed in setting.seeds):
            return setting.label or setting.name, _complete(setting.seeds)
    return "", ()


def _cell(table: TableResult, run_id: str) -> tuple[str, Sequence[TrainingResult], list[str], list[str]]:
    """Returns the label, complete trainings, metrics and verdicts of the cell that the run belongs to."""
    for cell in table.cells:
        if any(its.run_id == run_id for its in cell.trainings):
            own = [
                (shared, its)
                for shared, its in table.verdicts
                if label_in(cell, shared) in (its.treated.label, its.reference.label)
            ]
            metrics = [figure.metric for figure in cell.figures]
            return cell.label, _complete(cell.trainings), metrics, sentences_of(own)
    return "", (), [], []


def _complete(trainings: Sequence[TrainingResult]) -> Sequence[TrainingResult]:
    return [each for each in trainings if each.state is State.COMPLETE]


def _figures(seeds: Sequence[TrainingResult], metrics: Sequence[str] | None) -> list[tuple[str, str, str]]:
    """Returns a row for each metric; `metrics` are by default all test metrics that every training has."""
    if not seeds:
        return []
    if metrics is None:
        metrics = [name for name in seeds[0].metrics if "test/" in name]
    rows = []
    for name in metrics:
        if all(name in each.metrics for each in seeds):
            arm = Arm(name, (tuple(each.outcome(name) for each in seeds),))
            if arm.complete:
                mean, interval = mean_interval(arm, LEVEL)
                ends = "" if interval is None else " to ".join(f"{end:.{DIGITS}f}" for end in interval)
                rows.append((markdown(name), f"{mean:.{DIGITS}f}", ends))
    return rows
