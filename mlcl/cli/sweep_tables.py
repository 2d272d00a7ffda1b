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
from mlcl.results.sweep_result import SweepResult, rank_trials
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
    title = f"{report.name}: {_count_states(report.trials)}"
    if len(report.goals) > 1:
        title += f"; Pareto front of {len(report.front)}"
        names = [f"{goal.metric} ({goal.mode})" for goal in report.goals]
        entries = [(trial, trial.values) for trial in report.front]
    else:
        names = [report.score]
        best = rank_trials(report.trials, report.mode)[:BEST_SHOWN]
        entries = [(trial, (trial.score or 0.0,)) for trial in best]
    rows = [
        (trial.label, *(f"{value:.4f}" for value in values), settings_text(trial))
        for trial, values in entries
    ]
    heads, ranks = ("trial", *names, "settings"), (0, *range(len(names)))
    return fitted_table(heads, rows, title, ranks=ranks, texts=(len(names) + 1,), console=console)


def failures(report: SweepResult) -> list[str]:
    """Returns a line for each of the first failed trainings, including those of races and confirmations."""
    seeds = (seed for group in report.confirmations for seed in group.seeds)
    trainings = [*report.trials, *report.baseline_trials, *report.race_trainings, *seeds]
    failed_trainings = [training for training in trainings if training.state is State.FAILED]
    lines = [f"{training.label} FAILED: {training.reason}" for training in failed_trainings[:FAILURES_SHOWN]]
    hidden_count = len(failed_trainings) - len(lines)
    return [*lines, f"and {hidden_count} more that FAILED"] if hidden_count else lines


def confirmation_table(report: SweepResult, console: Console = results) -> Table:
    """Returns a table of the confirmed settings with the mean metrics over their fresh seeds."""
    groups, columns = report.confirmations, _figure_titles(report)
    prefix = report.score.rpartition("/")[2] + ", " if len(report.goals) == 1 else ""
    title = f"{prefix}mean ± standard deviation over fresh seeds (none used by a search)"
    rows = [(group.label, *(_format_mean(group, metric) for metric in columns)) for group in groups]
    ranks = (0, *reversed(range(len(columns))))
    return fitted_table(("setting", *columns.values()), rows, title, ranks=ranks, console=console)


def settings_text(trial: TrainingResult) -> str:
    """Returns a trial's settings and post-hoc values as text: `section.temperature 0.08, knn.k 5`."""
    posthoc = {f"knn.{re.split(r'[./]', key)[-1]}": value for key, value in trial.chosen.items()}
    note = " (asked for)" if trial.origin == "asked for" else ""
    return f"{drawn_text({**trial.settings, **posthoc})}{note}"


def drawn_text(settings: Mapping[str, Any]) -> str:
    """Returns settings as text, without `objective.heads.` in their keys."""
    return ", ".join(
        f"{key.removeprefix('objective.heads.')} {_format_value(value)}" for key, value in settings.items()
    )


def _format_value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _count_states(trials: Sequence[TrainingResult]) -> str:
    states = [trial.state.value for trial in trials]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "no trial"


def _figure_titles(report: SweepResult) -> dict[str, str]:
    """Returns the titles of the confirmation table's columns by metric, for metrics that any seed has."""
    known_metrics = {
        metric for group in report.confirmations for seed in group.seeds for metric in seed.metrics
    }
    goal_metrics, raced = {goal.metric for goal in report.goals}, report.raced_neighbours
    names = list(dict.fromkeys(metric.rpartition("/")[2] for metric in sorted(goal_metrics)))
    columns: dict[str, str] = {}
    for name in names:
        # Metrics with the job's own neighbours are shown only if one is a goal, or if races chose them.
        is_knn_shown = f"knn/val/{name}" in goal_metrics or raced
        kinds = {
            prefix: title
            for prefix, title in FIGURES.items()
            if is_knn_shown or not prefix.startswith("knn/")
        }
        if raced:
            kinds |= {prefix: title.replace(", job's kNN", " + kNN") for prefix, title in kinds.items()}
        heading = f"{name}, " if len(names) > 1 else ""
        columns |= {f"{prefix}{name}": f"{heading}{title}" for prefix, title in kinds.items()}
    # Coarser levels of a hierarchy, if the classes have one, show the effect of heads on these levels.
    coarse_metrics = sorted(metric for metric in known_metrics if metric.startswith("test/accuracy_"))
    columns |= {metric: f"test, {metric.removeprefix('test/accuracy_')}" for metric in coarse_metrics}
    return {metric: title for metric, title in columns.items() if metric in known_metrics}


def _format_mean(group: SettingResult, metric: str) -> str:
    values = group.metric_values(metric)
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    missing = f" ({len(values)} of {len(group.seeds)} seeds)" if len(values) < len(group.seeds) else ""
    return f"{statistics.fmean(values):.4f}{spread}{missing}"


def sweep_lines(tree: Mapping[str, Any]) -> list[str]:
    """Returns the plan of a sweep as lines of text, from the tree that `plan_sweep` returns."""
    plan, data, training, time = tree["sweep"], tree["data"], tree["training"], tree["sweep"]["time"]
    arm_trials = [f"{arm['trials']} of {name}" for name, arm in plan["trials_of_arms"].items()]
    searches = f", in {plan['searches']} searches each" if plan["searches"] > 1 else ""
    rungs = ", ".join(map(str, plan["rungs_at_epochs"]))
    names = ", ".join(parameter["name"] for parameter in plan["searched"]["parameters"])
    first_settings = "".join(f"; tried first: {drawn_text(setting)}" for setting in plan["tried_first"])
    posthoc = " x ".join(
        f"{count} {key.rpartition('.')[2]}" for key, count in plan["answered_after_training"].items()
    )
    limit = "unknown until a training of this sweep has ended"
    if time is not None:
        limit = f"at most {duration(time['seconds'])}, one trial at a time, by {time['trainings']} trainings"
    fresh_trainings, disk = plan["most_confirmation_runs"], plan["disk"]
    size_each = "" if disk["bytes_each"] is None else f", {megabytes(disk['bytes_each'])} each"
    lines = {
        "sweep": f"{plan['name']}: {plan['score']} ({plan['mode']}), {plan['sampler']}, {plan['scheduler']}",
        "trials": " and ".join(arm_trials or [str(plan["trials"])]) + searches,
        "fresh seeds": f"at most {fresh_trainings} trainings" if fresh_trainings else "none",
        "baselines": ", ".join(plan["baselines"]) or "none",
        "epochs": f"at most {plan['most_epochs']:,}; {plan['most_epochs_each']} a training, "
        f"{training['steps_per_epoch']:,} steps each" + (f"; pruned at epoch {rungs}" if rungs else ""),
        "time": limit + (f"; budget {plan['budget']}" if plan["budget"] else ""),
        "disk": f"at most {disk['most_trainings_kept']} trainings keep model and embeddings{size_each} "
        f"(tracking.keep: {disk['keep']})",
        "data": f"{data['name']}: {data['train']:,} training and {data['validation']:,} validation rows",
        "varied": (names or "nothing") + first_settings + (f"; {plan['outside']}" if plan["outside"] else ""),
        "after training": f"{posthoc} of the neighbours" if posthoc else "nothing is left to choose",
        "writes": f"{tree['writes']['folder']}; tracking {tree['writes']['tracking']}",
    }
    if plan["encoding"] is None or plan["encoding"]["rows"]:
        lines["frozen inputs"] = forecast_text(plan["encoding"])
    width = max(map(len, lines))
    return [f"{name:{width}}  {text}" for name, text in lines.items()]
