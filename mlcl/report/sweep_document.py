"""The report of a sweep: what was asked, what the search found, and its figures on fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import yaml

from mlcl.config import dump_job
from mlcl.report.comparison_tables import comparison_blocks
from mlcl.report.document import (
    Block,
    Cell,
    Code,
    Details,
    Document,
    Picture,
    Section,
    Table,
    Text,
    plot_blocks,
    text_row,
)
from mlcl.report.plots.comparison_plots import forest_plot
from mlcl.report.plots.plot import PlotCollection
from mlcl.report.plots.search_plots import front_of
from mlcl.report.provenance import data_sections, provenance_table
from mlcl.report.runs import Runs
from mlcl.report.sweep_data import SweepData, trainings_of
from mlcl.report.sweep_result import SweepResult, chosen_settings, next_command
from mlcl.report.sweep_tables import (
    budget_table,
    headline_metrics,
    mean_and_spread,
    metrics_table,
    run_figure,
    seeds_table,
    settings_table,
    trials_table,
    value_text,
)
from mlcl.tracking import State
from mlcl.tracking.names import Tag

FLATTERS = "It was selected by that figure, which therefore flatters it; fresh seeds were not."
TOP = 10
"""Search trials that are shown at first."""


def sweep_document(
    runs: Runs, data: SweepData, result: SweepResult, collection: PlotCollection, knn: Mapping[str, str]
) -> Document:
    """The report. Figures of the search and of fresh seeds are in different sections.

    `knn` has the choice of the neighbours by the mean over a setting's fresh seeds, by setting.
    """
    plots, missing = collection
    inside = [run for _, _, run in trainings_of(runs, data.run)]
    sections = [
        Section("Result", _result(data, result, knn)),
        Section("On fresh seeds", _fresh(data, result)),
        Section("Found by the search", _found(data)),
        Section("Plots", plot_blocks(plots, missing)),
        Section("What was asked", _asked(data)),
        Section("What it took", _costs(data)),
        *data_sections(inside),
        Section("Where it comes from", (provenance_table(data.run, inside, runs.tracker.shown),)),
    ]
    tags = data.run.data.tags
    reason = tags.get(Tag.REASON, "")
    about = f"Sweep {tags[Tag.ID]}, {tags.get(Tag.STATE, '')}" + (f": {reason}" if reason else "")
    return Document(f"Sweep {data.name}", about, tuple(sections), tuple(missing), data.conclusions)


def _result(data: SweepData, result: SweepResult, knn: Mapping[str, str]) -> tuple[Block, ...]:
    """The verdict, the differences as a picture, what to use and the next command."""
    if result.setting is None:
        return (Text("No search trial is complete: there is no best setting."),)
    said = data.conclusions or ((result.verdict.sentence,) if result.verdict else ())
    blocks: list[Block] = [*map(Text, said), *_front(data)]
    if not len(data.confirmation):
        blocks.append(Text("No setting was trained again on fresh seeds (--seeds)."))
    if result.comparison is not None:
        blocks.append(Picture(forest_plot(result.comparison)))
    settings = chosen_settings(data, result.setting, knn.get(result.setting, ""))
    rows = tuple(text_row(key, value_text(value)) for key, value in settings.items())
    what, command = next_command(data, result)
    blocks += [Text(f"Use {result.setting}:"), Table(("key", "value"), rows, left=(0, 1))]
    return (*blocks, Text(f"{what}:"), Code(command))


def _front(data: SweepData) -> list[Block]:
    """The trials on the Pareto front; empty for a single goal."""
    if len(data.goals) < 2:
        return []
    front = data.search[data.search["number"].isin(front_of(data))]
    goals = " and ".join(f"{goal.metric} ({goal.mode})" for goal in data.goals)
    return [Text(f"On the Pareto front of {goals}: {', '.join(front['setting'])}.")]


def _called(data: SweepData, best: pd.Series) -> list[Block]:
    """Under which name the best trial was confirmed, where that is not its own."""
    name = data.confirmed.get(best["run_id"])
    if name is None:
        return [Text(f"{best['setting']} was not trained on fresh seeds.")]
    if name != best["setting"]:
        return [Text(f"{best['setting']} and {name} are the same job: on fresh seeds it is called {name}.")]
    return []


def _shrinkage(data: SweepData) -> list[Block]:
    """The best trial's score when it was selected, and on fresh seeds."""
    best = data.best
    done = data.confirmation[data.confirmation["state"] == State.COMPLETE]
    if best is None:
        return []
    mean, _ = mean_and_spread(done[done["setting"] == data.confirmed.get(best["run_id"])], data.score)
    if mean.value is None:
        return []
    change = Cell(f"{mean.value - float(best['score']):+.4f}")
    row = (run_figure(best, "score", data.score), mean, change)
    heads = ("when it was selected", f"mean of {_counted(len(mean.runs), 'fresh seed')}", "change")
    return [Text(f"{data.score} of {best['setting']}:"), Table(heads, (row,), left=())]


def _asked(data: SweepData) -> tuple[Block, ...]:
    tags = data.run.data.tags
    said = {
        "score": f"{data.score} ({data.mode})",
        "goals": ", ".join(f"{goal.metric} ({goal.mode})" for goal in data.goals),
        "trials": tags.get(Tag.SWEEP_TRIALS, ""),
        "fresh seeds": tags.get(Tag.SWEEP_SEEDS, ""),
        "settings confirmed": tags.get(Tag.SWEEP_CONFIRM, ""),
        "budget": tags.get(Tag.SWEEP_BUDGET, "") or "none",
    }
    if len(data.goals) < 2:
        said.pop("goals")
    job = yaml.safe_dump(dump_job(data.job), sort_keys=False)
    return (
        Table(("what", "asked"), tuple(text_row(*item) for item in said.items()), left=(0, 1)),
        Details("The space", (Code(data.space_text),)),
        Details("The job", (Code(job),)),
    )


_ONE_PAIR = Text(
    "The result above is a test of one pair, which validation chose. Below every setting is tested; Holm's "
    "correction over all of these tests makes each p larger."
)


def _fresh(data: SweepData, result: SweepResult) -> tuple[Block, ...]:
    best = data.best
    if not len(data.confirmation) or best is None:
        return (Text("Nothing was trained on fresh seeds."),)
    metrics = headline_metrics(data.confirmation, data.score)
    compared: tuple[Block, ...] = (Text(result.problem),) if result.problem else ()
    if result.comparison is not None:
        compared = (*((_ONE_PAIR,) if result.verdict else ()), *comparison_blocks(result.comparison))
    return (
        settings_table(data.confirmation, [data.score, *metrics], data.groups),
        *compared,
        *_called(data, best),
        *_shrinkage(data),
        Details("Every seed", (seeds_table(data.confirmation, metrics),)),
        Details("All figures on test", (metrics_table(data.confirmation),)),
        *_failures(data.confirmation),
    )


def _found(data: SweepData) -> tuple[Block, ...]:
    counts = ", ".join(f"{number} {state}" for state, number in data.search["state"].value_counts().items())
    said = f"{_counted(len(data.search), 'search trial')}: {counts}."
    if len(data.dropped):
        said += f" {len(data.dropped)} more do not fit the latest space, and are left out."
    how = "" if data.pruned_by == data.score else f" by {data.pruned_by}"
    goals = [goal.metric for goal in data.goals if goal.metric != data.score]
    columns = (data.score, goals, (*data.varied, *data.answered))
    better = "highest" if data.mode == "max" else "lowest"
    first = data.best_first.head(1)
    return (
        Text(said),
        *(Text(f"{name} has the {better} {data.score}. {FLATTERS}") for name in first["setting"]),
        Text(
            f"Each was trained on one and the same seed. A pruned one's score is of its last validation{how}."
        ),
        trials_table(data.best_first.head(TOP), *columns),
        Details("All trials", (trials_table(data.search, *columns),)),
        *_failures(data.search),
    )


def _failures(runs: pd.DataFrame) -> list[Block]:
    """The reasons of failed trainings; empty without one."""
    failed = runs[runs["state"] == State.FAILED]
    rows = [
        (Cell(f"{run['setting']}, seed {run['seed']}", run["run_id"]), Cell(str(run["reason"])))
        for _, run in failed.iterrows()
    ]
    if not rows:
        return []
    return [Details("Why trainings failed", (Table(("training", "reason"), tuple(rows), left=(0, 1)),))]


def _costs(data: SweepData) -> tuple[Block, ...]:
    tags = data.run.data.tags
    asked, spent = tags.get(Tag.SWEEP_BUDGET, ""), tags.get(Tag.SWEEP_SPENT, "")
    said = f"Asked: {asked or 'no budget'}. Spent: {spent or 'not recorded'}."
    hours = "Hours are those of the trainings, which ran side by side; CPU and GPU hours are what they held."
    return (Text(said), Text(hours), budget_table(data))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
