"""Builds the report of a sweep: verdicts, metrics on fresh seeds, search trials, request and costs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from mlcl.config.safe_yaml import dump_yaml
from mlcl.markup import format_count
from mlcl.report.document import (
    Block,
    Code,
    Details,
    Document,
    Picture,
    ReportCell,
    ReportSection,
    ReportTable,
    data_sections,
    plot_blocks,
    provenance_table,
    text_row,
    value_text,
)
from mlcl.report.plots.charts import PlotCollection
from mlcl.report.plots.comparison_plots import forest_plot
from mlcl.report.sweep_data import SweepData, chosen_settings, headline_metrics, next_command
from mlcl.report.sweep_tables import (
    budget_table,
    mean_and_spread,
    metrics_table,
    run_figure,
    seeds_table,
    settings_table,
    trials_table,
)
from mlcl.store import State
from mlcl.training.events import TIMES

FLATTERS = "It was selected by that figure, which therefore flatters it; fresh seeds were not."
TOP, MOST = 10, 1000
"""The number of search trials that are shown at once, and the largest number in the table to open."""


def sweep_document(
    data: SweepData, setting: str | None, collection: PlotCollection, knn: Mapping[str, str], store: str
) -> Document:
    """Returns the report of a sweep. Metrics of the search and of fresh seeds are in different sections.

    `setting` is the setting to use, see `setting_to_use`. `collection` has the plots; `knn` the k-NN
    parameters with the best mean over fresh seeds, in words, keyed by setting; `store` is the tracking
    store's printed URI.
    """
    plots, missing = collection
    result = data.result
    sections = [
        ReportSection("Result", _result_blocks(data, setting, knn)),
        ReportSection("On fresh seeds", _confirmation_blocks(data)),
        ReportSection("Found by the search", _search_blocks(data)),
        ReportSection("Plots", plot_blocks(plots, missing)),
        ReportSection("What was asked", _request_blocks(data)),
        ReportSection("What it took", _cost_blocks(data)),
        *data_sections({result.data.name: result.data.notes} if result.data else {}),
        ReportSection(
            "Where it comes from", (provenance_table(result.provenance, result.run_id or "", store),)
        ),
    ]
    about = f"Sweep {result.id}, {result.state}" + (f": {result.reason}" if result.reason else "")
    conclusions = tuple(verdict.sentence for verdict in result.verdicts)
    return Document(f"Sweep {result.name}", about, tuple(sections), tuple(missing), conclusions)


def _result_blocks(data: SweepData, setting: str | None, knn: Mapping[str, str]) -> tuple[Block, ...]:
    """Returns the verdicts, a plot of their differences, the setting to use, and the next command."""
    if setting is None:
        return ("No search trial is complete: there is no best setting.",)
    blocks: list[Block] = [*(verdict.sentence for verdict in data.result.verdicts), *_front_blocks(data)]
    if not len(data.confirmation):
        blocks.append("No setting was trained again on fresh seeds (--seeds).")
    if data.result.verdicts:
        blocks.append(Picture(forest_plot(data.result.verdicts)))
    settings = chosen_settings(data, setting, knn.get(setting, ""))
    rows = tuple(text_row(key, value_text(value)) for key, value in settings.items())
    step, command = next_command(data)
    blocks += [f"Use {setting}:", ReportTable(("key", "value"), rows, left=(0, 1))]
    return (*blocks, f"{step}:", Code(command))


def _front_blocks(data: SweepData) -> list[Block]:
    """Returns a sentence with the trials on the Pareto front; empty for a single goal."""
    if len(data.result.goals) < 2:
        return []
    labels = ", ".join(trial.label for trial in data.result.front)
    goals = " and ".join(f"{goal.metric} ({goal.mode})" for goal in data.result.goals)
    return [f"On the Pareto front of {goals}: {labels}."]


def _name_blocks(data: SweepData, best: pd.Series) -> list[Block]:
    """Returns a sentence if the best trial was confirmed under another name or not at all, else nothing."""
    name = data.confirmed_names.get(best["setting"])
    if name is None:
        return [f"{best['setting']} was not trained on fresh seeds."]
    if name != best["setting"]:
        return [f"{best['setting']} and {name} are the same job: on fresh seeds it is called {name}."]
    return []


def _shrinkage_blocks(data: SweepData) -> list[Block]:
    """Returns a table with the best trial's score in the search, its mean on fresh seeds, and the change."""
    best = data.best
    rows = data.confirmation[data.confirmation["state"] == State.COMPLETE]
    if best is None:
        return []
    mean, _ = mean_and_spread(
        rows[rows["setting"] == data.confirmed_names.get(best["setting"])], data.result.score
    )
    if mean.value is None:
        return []
    change = ReportCell(f"{mean.value - float(best['score']):+.4f}")
    row = (run_figure(best, "score", data.result.score), mean, change)
    heads = ("when it was selected", f"mean of {format_count(len(mean.runs), 'fresh seed')}", "change")
    return [f"{data.result.score} of {best['setting']}:", ReportTable(heads, (row,), left=())]


def _request_blocks(data: SweepData) -> tuple[Block, ...]:
    request, goals = data.result.asked, data.result.goals
    rows = {"score": f"{data.result.score} ({data.result.mode})"}
    if len(goals) > 1:
        rows["goals"] = ", ".join(f"{goal.metric} ({goal.mode})" for goal in goals)
    if request is not None:
        rows |= {"trials of an arm": str(request.trials), "fresh seeds of an arm": str(request.seeds)}
        rows |= {"searches of an arm": str(request.searches)}
        rows |= {"settings that race": str(request.confirm), "budget": request.budget or "none"}
    job = dump_yaml(dict(data.result.job))
    return (
        ReportTable(("what", "asked"), tuple(text_row(*item) for item in rows.items()), left=(0, 1)),
        Details("The space", (Code(data.result.space),)),
        Details("The job", (Code(job),)),
    )


def _confirmation_blocks(data: SweepData) -> tuple[Block, ...]:
    best = data.best
    if not len(data.confirmation) or best is None:
        return ("Nothing was trained on fresh seeds.",)
    metrics = headline_metrics(data.confirmation, data.result.fresh_score)
    groups = {setting.name: setting.run_id or "" for setting in data.result.settings}
    return (
        settings_table(data.confirmation, [data.result.fresh_score, *metrics], groups),
        *_name_blocks(data, best),
        *_shrinkage_blocks(data),
        Details("Every seed", (seeds_table(data.confirmation, metrics),)),
        Details("All figures on test", (metrics_table(data.confirmation),)),
        *_failure_blocks(data.confirmation),
    )


def _race_blocks(data: SweepData) -> list[Block]:
    """Returns a table with one row for each search that had a race; empty if no search had one."""
    rows = tuple(
        text_row(arm.name, str(search.number), search.sentence)
        for arm in data.result.arms
        for search in arm.searches
        if search.sentence
    )
    if not rows:
        return []
    intro = "The best trials and the job as written were trained on fresh seeds, and compared on validation:"
    return [intro, ReportTable(("arm", "search", "picked"), rows, left=(0, 2))]


def _search_blocks(data: SweepData) -> tuple[Block, ...]:
    counts = ", ".join(f"{number} {state}" for state, number in data.search["state"].value_counts().items())
    sentence = f"{format_count(len(data.search), 'search trial')}: {counts}."
    if len(data.dropped):
        sentence += f" {len(data.dropped)} more do not fit the latest space, and are left out."
    suffix = "" if data.pruning_metric == data.result.score else f" by {data.pruning_metric}"
    goals = [goal.metric for goal in data.result.goals if goal.metric != data.result.score]
    columns = (data.result.score, goals, (*data.varied, *data.chosen_keys))
    better = "highest" if data.result.mode == "max" else "lowest"
    best_row = data.ranked_trials.head(1)
    return (
        sentence,
        *(f"{name} has the {better} {data.result.score}. {FLATTERS}" for name in best_row["setting"]),
        f"Each was trained on one and the same seed. A pruned one's score is of its last validation{suffix}.",
        trials_table(data.ranked_trials.head(TOP), *columns),
        *(f"{line}." for arm in data.result.arms for line in arm.stops),
        *_race_blocks(data),
        _all_trials(data, columns),
        *_failure_blocks(data.search),
    )


def _all_trials(data: SweepData, columns: tuple[str, list[str], tuple[str, ...]]) -> Details:
    """Returns a hidden table of all trials; of more than `MOST` those with the best scores."""
    if len(data.search) <= MOST:
        return Details("All trials", (trials_table(data.search, *columns),))
    sentence = f"All {len(data.search):,} trials: mlcl.load({data.result.name!r}).frame."
    return Details(f"The best {MOST:,}", (sentence, trials_table(data.ranked_trials.head(MOST), *columns)))


def _failure_blocks(runs: pd.DataFrame) -> list[Block]:
    """Returns a hidden table with the reasons of failed trainings; empty if none failed."""
    failed = runs[runs["state"] == State.FAILED]
    rows = [
        (ReportCell(f"{run['setting']}, seed {run['seed']}", run["run_id"]), ReportCell(str(run["reason"])))
        for _, run in failed.iterrows()
    ]
    if not rows:
        return []
    return [Details("Why trainings failed", (ReportTable(("training", "reason"), tuple(rows), left=(0, 1)),))]


def _cost_blocks(data: SweepData) -> tuple[Block, ...]:
    budget, spent = data.result.asked and data.result.asked.budget, data.result.spent
    sentence = f"Asked: {budget or 'no budget'}. Spent: {spent or 'not recorded'}."
    hours = "Hours are those of the trainings, which ran side by side; CPU and GPU hours are what they held."
    return (sentence, hours, budget_table(data), *time_shares(data))


def time_shares(data: SweepData) -> list[Block]:
    """Returns a sentence with the shares of training and evaluation in the time of trials and fresh seeds."""
    result = data.result
    trainings = [*result.all_trials, *(seed for setting in result.settings for seed in setting.seeds)]
    timed_trainings = [
        training for training in trainings if training.seconds and TIMES[0] in training.metrics
    ]
    if not timed_trainings:
        return []
    seconds = sum(training.seconds or 0.0 for training in timed_trainings)
    train, evaluation = (
        sum(training.metrics[name] for training in timed_trainings) / seconds for name in TIMES
    )
    shares = f"{train:.0%} were training and {evaluation:.0%} evaluation"
    rest = "the rest was starting, reading data, logging and writing"
    return [f"Of the {seconds:,.0f} s of {format_count(len(timed_trainings), 'training')}, {shares}; {rest}."]
