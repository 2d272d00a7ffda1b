"""Plots of kNN figures, computed from the embeddings that runs logged.

Shapes: S seeds, K values of k.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.evaluation.tasks import Array
from mlcl.report.plots.knn_plots import SHOWN, best_words, curve_plot, heat_plot
from mlcl.report.plots.knn_scores import KnnScores, knn_grid, knn_scores, knn_table
from mlcl.report.plots.matplotlib_backend import chart_plot
from mlcl.report.plots.plot import Axis, Chart, Plot, PlotSkipped, Series, build_plots, mean_series
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

NAME = "neighbour_overlap"
CURVES = 2
"""Most settings whose curves are drawn in one plot: each has two lines."""


def neighbour_plots(
    folders: Mapping[str, Sequence[Path]], job_data_of: Callable[[Path], JobData]
) -> tuple[list[Plot], list[tuple[str, str]], dict[str, str]]:
    """The metric by k, lambda and tau, and the labels that rows share with their neighbours.

    Plots, reasons of those that are missing, and the best (k, lambda, tau) of each setting in words.

    `folders`: the folders of each setting's runs, or of their artifacts, one for each seed. `job_data_of`
    gives the data of the run in a folder; all runs must have as many rows of the same data set. Test figures
    are drawn where the first run has read the test split. Nothing is trained.
    """
    ks: list[int] = []
    tables: dict[str, list[Array]] = {}
    jobs: dict[str, JobConfig] = {}
    shares: dict[str, list[list[float]]] = {}
    left: dict[tuple[str, str], None] = {}
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
                jobs[setting] = job_data.job
            else:
                left[f"curves of {setting}", f"at most {CURVES} settings are drawn beside each other"] = None
        except UserError as error:
            left[f"neighbours of {setting}", error.problem] = None
        except PlotSkipped as reason:
            left[f"curves of {setting}", str(reason)] = None
    scores = {setting: knn_scores(each, jobs[setting]) for setting, each in tables.items()}
    plots, reasons = build_plots({**_curves(scores, jobs), NAME: lambda: overlap_plot(shares, ks, split)})
    return plots, [*left, *reasons], {setting: best_words(each) for setting, each in scores.items()}


def _curves(scores: Mapping[str, KnnScores], jobs: Mapping[str, JobConfig]) -> dict[str, Callable[[], Plot]]:
    if not scores:
        return {}
    metric = jobs[next(iter(scores))].evaluation.metric.rpartition("/")[2]
    curves = {f"knn_{axis}": partial(curve_plot, axis, scores, metric) for axis in SHOWN}
    return {"knn_heat": partial(heat_plot, scores, metric), **curves}


def overlap_plot(shares: Mapping[str, Sequence[Sequence[float]]], ks: Sequence[int], split: str) -> Plot:
    """Plots `shares` (S, K) of each setting in a split by k. Raises PlotSkipped where no row has a label.

    Source: kNN-MLTC Table 6.
    """
    if not any(np.isfinite(share).any() for share in shares.values()):
        raise PlotSkipped("no neighbour has a label")
    series = tuple(_series(setting, np.asarray(share_SK), ks) for setting, share_SK in shares.items())
    chart = Chart(Axis("k (neighbours)", log=True), Axis("share of shared labels"), series)
    caption = (
        f"Of the labels that the k nearest training rows bring, the share that is the {split} row's own; "
        f"mean of all {split} rows. A class counts as one label, and so does an aspect's rating."
    )
    if any(len(share) > 1 for share in shares.values()):
        caption += " Means over seeds, bands and bars of one standard deviation."
    return chart_plot(NAME, "Labels shared with the neighbours", caption, chart)


def _series(setting: str, share_SK: Array, ks: Sequence[int]) -> Series:
    deviation_K = share_SK.std(axis=0, ddof=1) if len(share_SK) > 1 else None
    return mean_series(setting, ks, share_SK.mean(axis=0), deviation_K, "line" if len(ks) > 1 else "points")
