"""Formats a sweep for the terminal: the plan, the best trials, failures, and results on fresh seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from mlcl.cli.output import fitted_table, results, tell
from mlcl.markup import duration, megabytes
from mlcl.results.sweep_result import SweepResult, ranked
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.service.engine.encoding import forecast_text
from mlcl.tracking import State

BEST_SHOWN = 5
FAILURES_SHOWN = 5
FIGURES = {
    "val/": "validation",
    "knn/val/": "validation, job's kNN",
    "knn_best/val/": "validation + kNN",
    "test/": "test",
    "ensemble/test/": "test, ensemble",
    "knn/test/": "test, job's kNN",
    "knn_best/test/": "test + kNN",
}
"""The titles of the columns of the confirmation table, keyed by the prefix of the metric."""


def print_result(report: SweepResult) -> None:
    """Prints a sweep's best trials, failures, results on fresh seeds, and registered model."""
    results.print(trials_table(report))
    for line in failures(report):
        tell(line)
    if report.confirmations:
        results.print(confirmation_table(report))
    if report.registered:
        tell(f"best model: {report.registered}")


def print_conclusions(report: SweepResult) -> None:
    """Prints why searches stopped, what each search picked, and the verdicts."""
    for arm in report.arms:
        for sentence in arm.stops:
            tell(f"stopped: {sentence}")
        for sentence in arm.sentences:
            tell(f"picked: {sentence}")
    for verdict in report.verdicts:
        tell(verdict.sentence)


def trials_table(report: SweepResult, console: Console = results) -> Table:
    """Returns a table of the best complete trials; with several goals, of the Pareto front."""
    title = f"{report.name}: {_counts(report.trials)}"
    if len(report.goals) > 1:
        title += f"; Pareto front of {len(report.front)}"
        names = [f"{goal.metric} ({goal.mode})" for goal in report.goals]
        shown = [(trial, trial.values) for trial in report.front]
    else:
        names = [report.score]
        best = ranked(report.trials, report.mode)[:BEST_SHOWN]
        shown = [(trial, (trial.score or 0.0,)) for trial in best]
    rows = [(trial.label, *(f"{its:.4f}" for its in values), settings_text(trial)) for trial, values in shown]
    heads, ranks = ("trial", *names, "settings"), (0, *range(len(names)))
    return fitted_table(heads, rows, title, ranks=ranks, texts=(len(names) + 1,), console=console)


def failures(report: SweepResult) -> list[str]:
    """Returns a line for each of the first failed trainings, including those of races and confirmations."""
    seeds = (seed for group in report.confirmations for seed in group.seeds)
    trainings = [*report.trials, *report.baseline_trials, *report.race_trainings, *seeds]
    failed = [t for t in trainings if t.state is State.FAILED]
    lines = [f"{t.label} FAILED: {t.reason}" for t in failed[:FAILURES_SHOWN]]
    more = len(failed) - len(lines)
    return [*lines, f"and {more} more that FAILED"] if more else lines


def confirmation_table(report: SweepResult, console: Console = results) -> Table:
    """Returns a table of the confirmed settings with the mean metrics over their fresh seeds."""
    groups, columns = report.confirmations, _figures(report)
    what = report.score.rpartition("/")[2] + ", " if len(report.goals) == 1 else ""
    title = f"{what}mean ± standard deviation over fresh seeds (none used by a search)"
    rows = [(group.label, *(_mean(group, metric) for metric in columns)) for group in groups]
    ranks = (0, *reversed(range(len(columns))))
    return fitted_table(("setting", *columns.values()), rows, title, ranks=ranks, console=console)


def settings_text(trial: TrainingResult) -> str:
    """Returns a trial's settings and post-hoc values as text: `section.temperature 0.08, knn.k 5`."""
    chosen = {f"knn.{re.split(r'[./]', key)[-1]}": value for key, value in trial.chosen.items()}
    asked = " (asked for)" if trial.origin == "asked for" else ""
    return f"{drawn_text({**trial.settings, **chosen})}{asked}"


def drawn_text(settings: Mapping[str, Any]) -> str:
    """Returns settings as text, without `objective.heads.` in their keys."""
    return ", ".join(
        f"{key.removeprefix('objective.heads.')} {_short(value)}" for key, value in settings.items()
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _counts(trials: Sequence[TrainingResult]) -> str:
    states = [trial.state.value for trial in trials]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "no trial"


def _figures(report: SweepResult) -> dict[str, str]:
    """Returns the titles of the confirmation table's columns by metric, for metrics that any seed has."""
    known = {metric for group in report.confirmations for seed in group.seeds for metric in seed.metrics}
    asked, raced = {goal.metric for goal in report.goals}, report.raced_neighbours
    names = list(dict.fromkeys(metric.rpartition("/")[2] for metric in sorted(asked)))
    columns: dict[str, str] = {}
    for name in names:
        # Metrics with the job's own neighbours are shown only if one is a goal, or if races chose them.
        own = f"knn/val/{name}" in asked or raced
        kinds = {prefix: title for prefix, title in FIGURES.items() if own or not prefix.startswith("knn/")}
        if raced:
            kinds |= {prefix: title.replace(", job's kNN", " + kNN") for prefix, title in kinds.items()}
        lead = f"{name}, " if len(names) > 1 else ""
        columns |= {f"{prefix}{name}": f"{lead}{title}" for prefix, title in kinds.items()}
    # Coarser levels of a hierarchy, if the classes have one, show the effect of heads on these levels.
    coarse = sorted(metric for metric in known if metric.startswith("test/accuracy_"))
    columns |= {metric: f"test, {metric.removeprefix('test/accuracy_')}" for metric in coarse}
    return {metric: title for metric, title in columns.items() if metric in known}


def _mean(group: SettingResult, metric: str) -> str:
    values = group.metric_values(metric)
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    missing = f" ({len(values)} of {len(group.seeds)} seeds)" if len(values) < len(group.seeds) else ""
    return f"{statistics.fmean(values):.4f}{spread}{missing}"


def sweep_lines(tree: Mapping[str, Any]) -> list[str]:
    """Returns the plan of a sweep as lines of text, from the tree that `plan_sweep` returns."""
    its, data, training, time = tree["sweep"], tree["data"], tree["training"], tree["sweep"]["time"]
    searched = [f"{each['trials']} of {name}" for name, each in its["trials_of_arms"].items()]
    searches = f", in {its['searches']} searches each" if its["searches"] > 1 else ""
    rungs = ", ".join(map(str, its["rungs_at_epochs"]))
    varied = ", ".join(each["name"] for each in its["searched"]["parameters"])
    asked = "".join(f"; tried first: {drawn_text(setting)}" for setting in its["tried_first"])
    free = " x ".join(
        f"{count} {key.rpartition('.')[2]}" for key, count in its["answered_after_training"].items()
    )
    known = "unknown until a training of this sweep has ended"
    if time is not None:
        known = f"at most {duration(time['seconds'])}, one trial at a time, by {time['trainings']} trainings"
    fresh, disk = its["most_confirmation_runs"], its["disk"]
    each = "" if disk["bytes_each"] is None else f", {megabytes(disk['bytes_each'])} each"
    lines = {
        "sweep": f"{its['name']}: {its['score']} ({its['mode']}), {its['sampler']}, {its['scheduler']}",
        "trials": " and ".join(searched or [str(its["trials"])]) + searches,
        "fresh seeds": f"at most {fresh} trainings" if fresh else "none",
        "baselines": ", ".join(its["baselines"]) or "none",
        "epochs": f"at most {its['most_epochs']:,}; {its['most_epochs_each']} a training, "
        f"{training['steps_per_epoch']:,} steps each" + (f"; pruned at epoch {rungs}" if rungs else ""),
        "time": known + (f"; budget {its['budget']}" if its["budget"] else ""),
        "disk": f"at most {disk['most_trainings_kept']} trainings keep model and embeddings{each} "
        f"(tracking.keep: {disk['keep']})",
        "data": f"{data['name']}: {data['train']:,} training and {data['validation']:,} validation rows",
        "varied": (varied or "nothing") + asked + (f"; {its['outside']}" if its["outside"] else ""),
        "after training": f"{free} of the neighbours" if free else "nothing is left to choose",
        "writes": f"{tree['writes']['folder']}; tracking {tree['writes']['tracking']}",
    }
    if its["encoding"] is None or its["encoding"]["rows"]:
        lines["frozen inputs"] = forecast_text(its["encoding"])
    width = max(map(len, lines))
    return [f"{name:{width}}  {text}" for name, text in lines.items()]
