"""t-SNE of embeddings: points of a plane, and their plot by class and superclass.

Shapes: N rows of the sample, D embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from mlcl.data import class_parents
from mlcl.evaluation.tasks import Array, Task, array
from mlcl.report.plots.groups import RowGroup, picture_labels, row_groups, row_texts, sample
from mlcl.report.plots.panels import Cloud, Panel, panel_plot
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

FEWEST = 4
"""The fewest rows that can be projected."""


def project(x_ND: Array, seed: int = 0, perplexity: float = 30.0) -> Array:
    """t-SNE of embeddings (N, D) as points (N, 2) float32, started from their principal components.

    The perplexity is at most (N - 1) / 3. The same embeddings and seed give the same points. Equal embeddings
    are all at 0.

    Raises ValueError for fewer than `FEWEST` rows and embeddings that are not finite.
    """
    x_ND = np.asarray(x_ND, dtype=np.float64)
    if len(x_ND) < FEWEST:
        raise ValueError(f"{len(x_ND)} rows are too few to project, {FEWEST} are needed")
    if not np.isfinite(x_ND).all():
        raise ValueError("embeddings are not finite")
    x_ND = x_ND - x_ND.mean(axis=0)
    if not np.ptp(x_ND, axis=0).any():
        # The library divides by the first component's deviation, and the process crashes.
        return np.zeros((len(x_ND), 2), np.float32)
    # t-SNE does not depend on the scale, but float32 overflows. Two components need two columns.
    x_ND = x_ND / np.abs(x_ND).max()
    x_ND = np.pad(x_ND, ((0, 0), (0, max(0, 2 - x_ND.shape[1])))).astype(np.float32)
    method = TSNE(init="pca", random_state=seed, perplexity=min(perplexity, (len(x_ND) - 1) / 3))
    # Several threads would add up a normaliser in any order, and every step would enlarge the difference.
    with threadpool_limits(limits=1):
        points_N2: Array = method.fit_transform(x_ND)
    return points_N2


NAME = "tsne"
ROWS = 1000
"""Most rows of a plot."""
WORDS: dict[Task, tuple[str, str]] = {
    "single": ("class", "classes"),
    "multi_label": ("label", "labels"),
    "aspects": ("rating", "ratings"),
}
"""What a mark stands for: singular and plural."""


def tsne_plot(
    runs: Mapping[str, StoredRun],
    split: str,
    classes: Sequence[str] = (),
    *,
    cap: int = ROWS,
    seed: int = 0,
) -> Plot:
    """t-SNE of the same rows of a split for each run, a panel for each setting. Source: MLCL Figure 3.

    `classes`: see `row_groups`; of more than `cap` rows a sample is drawn. Raises PlotSkipped where there are
    too few rows, and UserError for an unknown class.
    """
    job_data = next(iter(runs.values())).job_data
    whole = job_data.dataset.split(split)
    groups = row_groups(job_data, whole, classes)
    rows_N = sample(job_data, whole, groups, cap, seed)
    if len(rows_N) < FEWEST:
        raise PlotSkipped(f"{len(rows_N)} {split} rows of these classes are too few")
    texts = row_texts(job_data, whole, rows_N)
    panels = [
        Panel(setting, _clouds(array(run.embeddings[split])[rows_N], groups, rows_N, texts, seed))
        for setting, run in runs.items()
    ]
    caption = _caption(job_data, f"{len(rows_N):,} {split} rows", len(runs))
    return panel_plot(NAME, f"The representation of {split} rows (t-SNE)", caption, panels)


def _clouds(
    x_ND: Array, groups: Sequence[RowGroup], rows_N: Array, texts: Sequence[str], seed: int
) -> tuple[Cloud, ...]:
    points_N2 = project(x_ND, seed)
    clouds = []
    for marker, group in enumerate(groups):
        here = np.flatnonzero(np.isin(rows_N, group.rows)).tolist()
        x, y = points_N2[here].T.tolist()
        clouds.append(Cloud(group.name, group.colour, marker, x, y, [texts[i] for i in here]))
    return tuple(clouds)


def _caption(job_data: JobData, rows: str, panels: int) -> str:
    name = picture_labels(job_data)
    levels = list(class_parents(job_data.dataset, name))
    one, several = WORDS[job_data.task]
    marks = f"A mark is a {one} of {name}"
    if levels:
        marks += f", a colour its {levels[-1]}"
    same = ", the same in every panel" if panels > 1 else ""
    return (
        f"{rows} of a few {several}{same}. {marks}. "
        "t-SNE keeps near rows near; distances between groups and the directions mean little."
    )
