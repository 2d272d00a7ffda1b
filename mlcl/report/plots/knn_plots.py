"""Plots of k-NN metrics, computed from the embeddings that runs logged.

Curves over k, lambda and tau, and heat maps over k and lambda (kNN-MLTC Figure 2); the labels that rows share
with their neighbours (kNN-MLTC Table 6). Shapes: S seeds, K values of k.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlcl.config import JobConfig, default_mode
from mlcl.errors import UserError
from mlcl.evaluation.tasks import Array
from mlcl.report.plots import style
from mlcl.report.plots.charts import Axis, Plot, PlotSkipped, build_plots, chart_plot, require_change, series
from mlcl.results.knn_scores import SPLITS, KnnScores, knn_grid, knn_scores, knn_table
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import AXES
from mlcl.training.stored_run import StoredRun

SHOWN = {
    "k": ("k", Axis("k (neighbours)", log=True)),
    "lambda": ("lambda", Axis("lambda (share of the neighbours in the prediction)")),
    "temperature": ("tau", Axis("tau (temperature of the neighbours' weights)", log=True)),
}
"""The short name and the plot axis of each of `AXES`."""
_MAP = 2.6
"""The height of a setting's heat map in inches."""
_NAMES = 11
"""The largest number of tick labels on an axis of a heat map."""
OVERLAP = "neighbour_overlap"
BEST, OWN = "best on validation", "the job's own"
"""The names of the two series of points in a plot of curves."""
CURVES = 2
"""The largest number of settings whose curves are drawn in one plot: each has two lines."""


def neighbour_plots(
    folders: Mapping[str, Sequence[Path]], job_data_of: Callable[[Path], JobData]
) -> tuple[list[Plot], list[tuple[str, str]], dict[str, str]]:
    """Draws the metric over k, lambda and tau, and the fraction of labels shared with the neighbours.

    `folders` has the folders of each setting's runs, or of their artifacts, one for each seed; `job_data_of`
    returns the data of the run in a folder. All runs must have the same data set and as many rows. Test
    metrics are drawn if the first run has evaluated the test split. Returns the plots, the (name, reason) of
    those not drawn, and for each setting the best (k, lambda, tau) in words. Nothing is trained.
    """
    ks: list[int] = []
    tables: dict[str, list[Array]] = {}
    jobs: dict[str, list[JobConfig]] = {}
    shares: dict[str, list[list[float]]] = {}
    skipped: dict[tuple[str, str], None] = {}
    split = "validation"
    for setting, folder in ((setting, folder) for setting, runs in folders.items() for folder in runs):
        try:
            job_data = job_data_of(folder)
            run = StoredRun.read(folder, job_data, test=split == "test")
            split = "test" if run.tested and not shares else split
            ks = ks or sorted({min(k, len(job_data.train)) for k in knn_grid(job_data.job).k})
            shares.setdefault(setting, []).append(run.overlap(ks, split))
            if setting in tables or len(tables) < CURVES:
                tables.setdefault(setting, []).append(knn_table(run))
                jobs.setdefault(setting, []).append(job_data.job)
            else:
                limit = f"at most {CURVES} settings are drawn beside each other"
                skipped[f"curves of {setting}", limit] = None
        except UserError as error:
            skipped[f"neighbours of {setting}", error.problem] = None
        except ValueError as reason:
            skipped[f"curves of {setting}", str(reason)] = None
    scores: dict[str, KnnScores] = {}
    for setting, seed_tables in tables.items():
        try:
            scores[setting] = knn_scores(seed_tables, jobs[setting])
        except ValueError as reason:
            skipped[f"curves of {setting}", str(reason)] = None
    metric = next((seed_jobs[0].evaluation.metric for seed_jobs in jobs.values()), "").rpartition("/")[2]
    builders: dict[str, Callable[[], Plot]] = {}
    if scores:
        builders["knn_heat"] = partial(heat_plot, scores, metric)
        builders |= {f"knn_{axis}": partial(curve_plot, axis, scores, metric) for axis in SHOWN}
    plots, reasons = build_plots({**builders, OVERLAP: lambda: overlap_plot(shares, ks, split)})
    return plots, [*skipped, *reasons], {setting: best_words(grid) for setting, grid in scores.items()}


def overlap_plot(shares: Mapping[str, Sequence[Sequence[float]]], ks: Sequence[int], split: str) -> Plot:
    """Returns a plot of the fraction of the neighbours' labels that a row has itself, over k.

    Source: kNN-MLTC Table 6. `shares` has the fractions (S, K) of each setting, means over the rows of
    `split`; `ks` has the K values of k. Raises PlotSkipped where no neighbour has a label.
    """
    if not any(np.isfinite(share).any() for share in shares.values()):
        raise PlotSkipped("no neighbour has a label")
    rows = []
    for setting, share_SK in shares.items():
        deviation_K = np.std(share_SK, axis=0, ddof=1) if len(share_SK) > 1 else None
        rows.append(series(setting, ks, np.mean(share_SK, axis=0), deviation_K))
    axes = Axis("k (neighbours)", log=True), Axis("share of shared labels")
    caption = (
        f"Of the labels that the k nearest training rows bring, the share that is the {split} row's own; "
        f"mean of all {split} rows. A class counts as one label, and so does an aspect's rating."
    )
    if any(len(share) > 1 for share in shares.values()):
        caption += " Means over seeds, bands and bars of one standard deviation."
    points = shares.keys() if len(ks) == 1 else ()
    return chart_plot(OVERLAP, "Labels shared with the neighbours", caption, rows, *axes, points)


def curve_plot(axis: str, scores: Mapping[str, KnnScores], metric: str) -> Plot:
    """Returns a plot of the metric over one of `AXES`, with the other axes at the best on validation.

    Raises PlotSkipped where every grid has only one value of this axis, or the metric is constant.
    """
    if all(len(grid.points_along(axis)) < 2 for grid in scores.values()):
        raise PlotSkipped(f"the grid has one {SHOWN[axis][0]} alone")
    rows = [
        _line_series(SPLITS[split] if len(scores) == 1 else f"{setting}, {SPLITS[split]}", grid, axis, split)
        for setting, grid in scores.items()
        for split in SPLITS
        if grid.points[split].notna().any()
    ]
    require_change(value for line in rows for value in line["y"])
    best_points = [grid.points.loc[[grid.best]] for grid in scores.values()]
    rows.append(_mark_series(BEST, axis, best_points))
    own_points = [
        grid.points.loc[[grid.own]] for grid in scores.values() if grid.own not in (None, grid.best)
    ]
    if own_points:
        rows.append(_mark_series(OWN, axis, own_points))
    axis_name, ruler = SHOWN[axis]
    title, caption = f"{metric} by {axis_name} of the neighbours", _caption(axis, scores)
    return chart_plot(f"knn_{axis}", title, caption, rows, ruler, Axis(metric), points=(BEST, OWN))


def _line_series(name: str, scores: KnnScores, axis: str, split: str) -> pd.DataFrame:
    points = scores.points_along(axis)
    deviation = None if points[f"{split}_sd"].isna().all() else points[f"{split}_sd"]
    return series(name, points[axis], points[split], deviation, _point_texts(points))


def _mark_series(name: str, axis: str, rows: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Returns a series with the validation and test metric of these points of the grid."""
    points = pd.concat([row.assign(value=row[split]) for split in SPLITS for row in rows])
    points = points.dropna(subset="value")
    return series(name, points[axis], points["value"], texts=_point_texts(points))


def best_words(scores: KnnScores) -> str:
    """Returns the best point of the grid in words: `k 50, lambda 0.3, tau 1`."""
    return _point_texts(scores.points.loc[[scores.best]])[0]


def _point_texts(points: pd.DataFrame) -> list[str]:
    return [
        ", ".join(f"{SHOWN[axis][0]} {value:.3g}" for axis, value in zip(AXES, row, strict=True))
        for row in points[list(AXES)].itertuples(index=False)
    ]


def _caption(axis: str, scores: Mapping[str, KnnScores]) -> str:
    other_names = " and ".join(SHOWN[other][0] for other in AXES if other != axis)
    best = "; ".join(
        f"{f'{setting}: ' if len(scores) > 1 else ''}{best_words(grid)}" for setting, grid in scores.items()
    )
    text = f"With {other_names} at the best on validation ({best}). "
    if any(grid.points["test"].notna().any() for grid in scores.values()):
        text += "The test split is drawn and chooses nothing. "
    if axis == "lambda":
        text += "lambda 0 is the model alone, lambda 1 the neighbours alone. "
    if any(grid.own not in (None, grid.best) for grid in scores.values()):
        text += "The job's own setting lies off the line where its other values differ. "
    if any(grid.points["val_sd"].notna().any() for grid in scores.values()):
        text += "Means over seeds, bands of one standard deviation. "
    return text.rstrip()


def heat_plot(scores: Mapping[str, KnnScores], metric: str) -> Plot:
    """Returns a plot with a heat map over k and lambda for each setting, on validation with tau at its best.

    Raises PlotSkipped where a grid has only one k or one lambda, or the metric is constant.
    """
    error = standard_error(list(scores.values()))
    maps = {setting: _plane(grid, metric, error) for setting, grid in scores.items()}
    if any(plane["k"].nunique() < 2 or plane["lambda"].nunique() < 2 for plane in maps.values()):
        raise PlotSkipped("the grid has one k or one lambda alone")
    require_change(value for plane in maps.values() for value in plane[metric])
    caption = "Mean over seeds on validation, tau at its best. The star is the best point."
    if error:
        caption += f" Dots are within one standard error of it ({error:.4f}, "
        caption += "pooled over settings and points)."
    table = pd.concat(plane.assign(setting=setting) for setting, plane in maps.items())
    name, title = "knn_heat", f"{metric} by k and lambda of the neighbours"
    return Plot(name, title, caption, table, partial(_draw, maps, metric))


def standard_error(scores: list[KnnScores]) -> float:
    """Returns the standard error of a mean over seeds, pooled over settings and points; 0 for one seed."""
    variances = [
        np.square(grid.points["val_sd"].dropna()).mean() / grid.seeds for grid in scores if grid.seeds > 1
    ]
    return float(np.sqrt(np.mean(variances))) if variances else 0.0


def _plane(scores: KnnScores, metric: str, error: float) -> pd.DataFrame:
    """Returns the grid at the best tau: k, lambda, metric, and flags `best` and `near` (within `error`)."""
    best = scores.points.loc[scores.best]
    points = scores.points[scores.points["in_grid"] & (scores.points["temperature"] == best["temperature"])]
    plane = points[["k", "lambda"]].assign(**{metric: points["val"]}).drop_duplicates(["k", "lambda"])
    return plane.assign(near=(plane[metric] - best["val"]).abs() <= error, best=points.index == scores.best)


def _draw(maps: Mapping[str, pd.DataFrame], metric: str) -> Figure:
    with style.matplotlib_style():
        figure = Figure(figsize=(style.WIDTH, _MAP * len(maps) + 0.4))
        panels = figure.subplots(len(maps), squeeze=False)[:, 0]
        for axes, (setting, plane) in zip(panels, maps.items(), strict=True):
            _draw_map(axes, plane, metric)
            axes.set_title(style.as_text(setting), loc="left")
    return figure


def _draw_map(axes: Axes, plane: pd.DataFrame, metric: str) -> None:
    values = plane.pivot(index="lambda", columns="k", values=metric)
    colours = "cividis_r" if default_mode(metric) == "max" else "cividis"  # better scores are darker
    image = axes.imshow(values, origin="lower", aspect="auto", cmap=colours)
    for flag, marker, size in (("near", ".", 40), ("best", "*", 160)):
        points = plane[plane[flag]]
        x = values.columns.get_indexer(pd.Index(points["k"]))
        y = values.index.get_indexer(pd.Index(points["lambda"]))
        axes.scatter(x, y, s=size, marker=marker, color="white", edgecolor="black", linewidth=0.7)
    axes.grid(False)
    for set_ticks, names in ((axes.set_xticks, values.columns), (axes.set_yticks, values.index)):
        positions = range(0, len(names), -(-len(names) // _NAMES))
        set_ticks(positions, [f"{names[position]:g}" for position in positions])
    axes.set(xlabel="k", ylabel="lambda")
    assert isinstance(axes.figure, Figure)
    axes.figure.colorbar(image, ax=axes, label=style.as_text(metric))
