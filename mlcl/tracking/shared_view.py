"""Builds shared views of MLflow's pages, and describes an experiment there by a table of its sweeps.

A shared view is a sorted table and charts of a sweep's or table's trainings. MLflow stores it as a tag of the
experiment, and opens it by a link. The format is undocumented: this is the format of MLflow 3.17.2, which
tests/browser checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from mlflow.entities import Run

from mlcl.markup import markdown, markdown_table
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.names import LOG10, SCORE, SWEEP_MODE, SWEEP_SCORE, Tag
from mlcl.tracking.params import axis, short_name
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.uri import pages_address, tracking_uri

CLASSIC = "workflowType=machine_learning"
"""The query option that opens MLflow's pages for model training; by default it opens those for LLMs."""
NOTE_BEGIN = "[All runs, best first]("
"""The beginning of the description of a run that has a view."""
MOST_AXES = 8
"""The largest number of axes of the parallel coordinates plot, and of parameter columns of the table."""
MOST_CHARTS = 6
"""The largest number of charts of one kind."""
THE_PARENT = "THE-PARENT-RUN-ID"
"""The placeholder in a view for the MLflow id of its own run, which is known only when the log is sent."""
SECTION = "mlcl"
RUNS = 100


def view_tag(key: str) -> str:
    """Returns the name of the experiment's tag that stores the view `key`."""
    return f"mlflow.sharedViewState.{key}"


def view_path(experiment_id: str, key: str, *, charts: bool = False) -> str:
    """Returns the path of a view (its table, or with `charts` its charts) below MLflow's address."""
    path = f"#/experiments/{experiment_id}/runs?{CLASSIC}&viewStateShareKey={key}"
    return f"{path}&compareRunsMode=CHART" if charts else path


def view_note(experiment_id: str, key: str) -> str:
    """Returns Markdown links to the table and the charts of a view, for the description of a run."""
    table, charts = view_path(experiment_id, key), view_path(experiment_id, key, charts=True)
    return f"{NOTE_BEGIN}{table}), and [in charts]({charts})."


def view_links(home: Path, id: str) -> dict[str, str]:
    """Returns the URLs of a log's view, keyed by `runs` and `charts`; empty before its run is in MLflow."""
    experiment = Cursor.of(home, id).experiment_id
    if experiment is None:
        return {}
    server = pages_address(tracking_uri(home))
    return {
        name: f"{server}/{view_path(experiment, id, charts=charts)}"
        for name, charts in (("runs", False), ("charts", True))
    }


def trials_view(
    owner: str, keys: Sequence[str], metric: str, mode: str, shared_metric: str | None = None
) -> dict[str, Any]:
    """Returns a view of the search trials of the sweep `owner`, best first.

    The columns are the score, the state, `shared_metric` (the metric at the largest epoch that all trials
    reached), and the searched `keys`, those of the objective first. The charts are parallel coordinates, a
    contour plot of a temperature and a weight, curves of `metric` over steps, and the score over each key.
    """
    keys = sorted(keys, key=lambda key: not key.startswith("objective."))[:MOST_AXES]
    axes = [axis(key) for key in keys]
    return _build_view(
        f"tags.{Tag.KIND} = 'trial' and tags.{Tag.OWNER} = '{owner}'",
        SCORE,
        [
            f"tags.`{Tag.STATE}`",
            *([f"metrics.`{shared_metric}`"] if shared_metric else []),
            *_param_columns(keys),
        ],
        [
            _parallel_chart(axes),
            *_contour_charts(axes),
            _curve_chart(metric),
            *(_scatter_chart(name) for name in axes[:MOST_CHARTS]),
        ],
        higher=mode == "max",
        title="What was searched",
    )


def cells_view(metrics: Mapping[str, bool], keys: Sequence[str]) -> dict[str, Any]:
    """Returns a view of the trainings nested in a table's run, ordered by the first of `metrics`, best first.

    `metrics` maps names to whether larger values are better; `keys` are the job keys in which the cells
    differ.
    """
    first, *others = metrics
    return _build_view(
        f"tags.{Tag.KIND} = 'cell' and tags.{Tag.PARENT} = '{THE_PARENT}'",
        first,
        [f"tags.`{Tag.CELL}`", *(f"metrics.`{name}`" for name in others), *_param_columns(keys[:MOST_AXES])],
        [
            {"type": "BAR", "metricKey": name, "runsCountToCompare": RUNS}
            for name in list(metrics)[:MOST_CHARTS]
        ],
        higher=metrics[first],
        title="Figures",
    )


def _param_columns(keys: Sequence[str]) -> list[str]:
    return [f"params.`{short_name(key) or key}`" for key in keys]


def _build_view(
    search_filter: str,
    metric: str,
    columns: Sequence[str],
    charts: Sequence[Mapping[str, Any]],
    *,
    higher: bool,
    title: str,
) -> dict[str, Any]:
    """Returns a view of the runs that match `search_filter`, ordered by the metric, with columns, charts."""
    return {
        **_FIXED,
        "searchFilter": search_filter,
        "orderByKey": f"metrics.`{metric}`",
        "orderByAsc": not higher,
        "selectedColumns": [f"metrics.`{metric}`", *columns],
        "compareRunSections": [
            {"uuid": SECTION, "name": title, "display": True, "columns": 2, "cardHeight": 400}
        ],
        "compareRunCharts": [
            {"uuid": f"{SECTION}-{index}", "metricSectionId": SECTION, "deleted": False, **chart}
            for index, chart in enumerate(charts)
        ],
    }


def view_text(view: Mapping[str, Any], parent: str) -> str:
    """Returns the view as the text of MLflow's tag; the runs nested in the run `parent` are expanded."""
    text = json.dumps({**view, "runsExpanded": {parent: True}}, separators=(",", ":"))
    return text.replace(THE_PARENT, parent)


_FIXED: dict[str, Any] = {
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "datasetsFilter": [],
    "modelVersionFilter": "All Runs",
    "viewMaximized": False,
    "runListHidden": False,
    "isAccordionReordered": True,
    "useGroupedValuesInCharts": False,
    "hideEmptyCharts": True,
    "groupBy": "",
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "runsHiddenMode": "SHOWALL",
    "globalLineChartConfig": {},
    "chartsSearchFilter": "",
}


def _parallel_chart(axes: Sequence[str]) -> dict[str, Any]:
    selection = {"selectedParams": list(axes), "selectedMetrics": [SCORE]}
    return {"type": "PARALLEL", **selection, "showAllRuns": True, "runsCountToCompare": RUNS}


def _contour_charts(axes: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a contour plot of a temperature and a weight if both vary, else of the first two axes."""
    pairs = [(x, y) for x in axes for y in axes if x.startswith(f"{LOG10}tau") and y.startswith("alpha.")]
    return [
        {
            "type": "CONTOUR",
            "xaxis": {"key": x, "type": "PARAM"},
            "yaxis": {"key": y, "type": "PARAM"},
            "zaxis": {"key": SCORE, "type": "METRIC"},
            "runsCountToCompare": RUNS,
        }
        for x, y in [*pairs, *combinations(axes, 2)][:1]
    ]


def _curve_chart(metric: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "xAxisKey": "step",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "lineSmoothness": 0,
        "range": {},
        "runsCountToCompare": RUNS,
    }


def _scatter_chart(name: str) -> dict[str, Any]:
    return {
        "type": "SCATTER",
        "xaxis": {"key": name, "type": "PARAM"},
        "yaxis": {"key": SCORE, "type": "METRIC"},
        "runsCountToCompare": RUNS,
    }


HEADING = "## Sweeps of this experiment"
"""The first line of a description by mlcl; a description that begins otherwise is a user's and is kept."""
MOST = 10
"""The largest number of sweeps that are listed for a metric."""
MOST_SWEEPS = 200
"""The number of latest sweeps that are considered."""


def describe_experiment(tracker: Tracker, run_id: str) -> None:
    """Describes the experiment of a run by tables of its best sweeps, unless a user has described it."""
    experiment = tracker.client.get_experiment(tracker.client.get_run(run_id).info.experiment_id)
    if not str(experiment.tags.get(Tag.NOTE, HEADING)).startswith(HEADING):
        return
    search_filter = f"tags.`{Tag.KIND}` = 'sweep'"
    sweeps = tracker.client.search_runs([experiment.experiment_id], search_filter, max_results=MOST_SWEEPS)
    groups: dict[tuple[str, str], list[Run]] = {}
    for sweep in sweeps:
        if SCORE in sweep.data.metrics and SWEEP_SCORE in sweep.data.params:
            goal = sweep.data.params[SWEEP_SCORE], sweep.data.params[SWEEP_MODE]
            groups.setdefault(goal, []).append(sweep)
    tables = [_sweep_table(*goal, groups[goal]) for goal in sorted(groups)]
    text = "\n\n".join([HEADING, *tables])
    tracker.client.set_experiment_tag(experiment.experiment_id, Tag.NOTE, text)


def _sweep_table(metric: str, mode: str, sweeps: list[Run]) -> str:
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
