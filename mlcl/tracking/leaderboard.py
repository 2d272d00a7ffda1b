"""Writes the description of an experiment in MLflow: a table of its sweeps with their best scores."""

from __future__ import annotations

from mlflow.entities import Run

from mlcl.markup import markdown, markdown_table
from mlcl.tracking.names import SCORE, SWEEP_MODE, SWEEP_SCORE, Tag
from mlcl.tracking.shared_view import view_path
from mlcl.tracking.tracker import Tracker

HEADING = "## Sweeps of this experiment"
"""The first line of each description written here; one that begins otherwise is a user's and is kept."""
MOST = 10
"""The largest number of sweeps that are listed for a metric."""
MOST_SWEEPS = 200
"""The number of latest sweeps that are considered."""


def describe_experiment(tracker: Tracker, run_id: str) -> None:
    """Sets the description of the experiment of a run, unless a user wrote one."""
    experiment = tracker.client.get_experiment(tracker.client.get_run(run_id).info.experiment_id)
    if not str(experiment.tags.get(Tag.NOTE, HEADING)).startswith(HEADING):
        return
    where = f"tags.`{Tag.KIND}` = 'sweep'"
    sweeps = tracker.client.search_runs([experiment.experiment_id], where, max_results=MOST_SWEEPS)
    groups: dict[tuple[str, str], list[Run]] = {}
    for sweep in sweeps:
        if SCORE in sweep.data.metrics and SWEEP_SCORE in sweep.data.params:
            goal = sweep.data.params[SWEEP_SCORE], sweep.data.params[SWEEP_MODE]
            groups.setdefault(goal, []).append(sweep)
    tables = [_table(*goal, groups[goal]) for goal in sorted(groups)]
    text = "\n\n".join([HEADING, *tables])
    tracker.client.set_experiment_tag(experiment.experiment_id, Tag.NOTE, text)


def _table(metric: str, mode: str, sweeps: list[Run]) -> str:
    ranked = sorted(sweeps, key=lambda run: run.data.metrics[SCORE], reverse=mode == "max")[:MOST]
    rows = [
        (
            f"[{markdown(run.data.tags[Tag.NAME])}]"
            f"({view_path(run.info.experiment_id, run.data.tags[Tag.ID])})",
            f"{run.data.metrics[SCORE]:.4f}",
            markdown(run.data.tags.get(Tag.BEST, "")),
            run.data.tags.get(Tag.SWEEP_TRIALS, ""),
        )
        for run in ranked
    ]
    return markdown_table(("sweep", f"best {markdown(metric)}", "of trial", "trials"), rows, left=(0, 2))
