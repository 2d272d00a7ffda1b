"""The share of the neighbours' labels that a row has too. Source: kNN-MLTC Table 6.

Shapes: S seeds, K values of k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mlcl.evaluation.tasks import Array
from mlcl.report.plots.chart import Axis, Chart, Series
from mlcl.report.plots.chart_plot import chart_plot
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.plot import Plot

NAME = "neighbour_overlap"


def overlap_plot(shares: Mapping[str, Sequence[Sequence[float]]], ks: Sequence[int], split: str) -> Plot:
    """Plots `shares` (S, K) of each setting in a split by k. Raises PlotSkipped where no row has a label."""
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
    mean_K = share_SK.mean(axis=0)
    series = Series(setting, "line" if len(ks) > 1 else "points", list(ks), mean_K.tolist())
    if len(share_SK) == 1:
        return series
    deviation_K = share_SK.std(axis=0, ddof=1)
    return replace(series, low=(mean_K - deviation_K).tolist(), high=(mean_K + deviation_K).tolist())
