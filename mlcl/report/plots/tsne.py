"""t-SNE plots of embeddings: rows marked by class, and one row with its nearest training rows.

Shapes: N rows, D embedding, K neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from mlcl.data import Split, class_parents
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation.knn import label_similarity
from mlcl.evaluation.tasks import Array, Task, array, as_classes
from mlcl.markup import format_count
from mlcl.report.plots import style
from mlcl.report.plots.charts import Plot, PlotSkipped
from mlcl.report.plots.groups import picture_labels, row_groups, row_texts, sample
from mlcl.report.plots.panels import Mark, panel_plot, points
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

TSNE_NAME, NEIGHBOURHOOD_NAME = "tsne", "tsne_neighbours"
ROWS = 1000
"""The largest number of rows in a plot."""
WORDS: dict[Task, tuple[str, str]] = {
    "single": ("class", "classes"),
    "multi_label": ("label", "labels"),
    "aspects": ("rating", "ratings"),
}
"""The words for a label in captions, singular and plural, keyed by task."""
FEWEST = 4
"""The smallest number of rows that can be projected."""
NEIGHBOURS = 80
"""The number of nearest training rows that are drawn, as in the paper."""
MOST = 5
"""The largest number of shared labels with a mark of its own; neighbours that share more have this mark."""
_STAR = style.MARKERS.index("*")
_BEST = style.COLOURS.index(style.BEST)
_COLOURS = [colour for colour in range(len(style.COLOURS)) if colour != _BEST]


def project(x_ND: Array, seed: int = 0) -> Array:
    """Projects embeddings (N, D) to points (N, 2) float32 by t-SNE, started from their principal components.

    The perplexity is 30, or (N - 1) / 3 if that is less. The same embeddings and seed give the same points.
    If all embeddings are equal, all points are 0.

    Raises ValueError for fewer than `FEWEST` rows and embeddings that are not finite.
    """
    x_ND = np.asarray(x_ND, dtype=np.float64)
    if len(x_ND) < FEWEST:
        raise ValueError(f"{len(x_ND)} rows are too few to project, {FEWEST} are needed")
    if not np.isfinite(x_ND).all():
        raise ValueError("embeddings are not finite")
    x_ND = x_ND - x_ND.mean(axis=0)
    if not np.ptp(x_ND, axis=0).any():
        # scikit-learn would divide by the first component's deviation, 0, and the process would crash.
        return np.zeros((len(x_ND), 2), np.float32)
    # t-SNE does not depend on the scale, but float32 overflows. Two components need two columns.
    x_ND = x_ND / np.abs(x_ND).max()
    x_ND = np.pad(x_ND, ((0, 0), (0, max(0, 2 - x_ND.shape[1])))).astype(np.float32)
    method = TSNE(init="pca", random_state=seed, perplexity=min(30.0, (len(x_ND) - 1) / 3))
    # Several threads would sum a normaliser in any order, and every step would enlarge the difference.
    with threadpool_limits(limits=1):
        points_N2: Array = method.fit_transform(x_ND)
    return points_N2


def tsne_plot(
    runs: Mapping[str, StoredRun], split: str, classes: Sequence[str] = (), *, seed: int = 0
) -> Plot:
    """Returns a t-SNE plot of the same rows of a split, with one panel for each run. Source: MLCL Figure 3.

    `runs` are keyed by the name of the setting; for `classes` see `row_groups`. Of more than `ROWS` rows a
    sample is drawn. Raises PlotSkipped for too few rows, and UserError for an unknown class.
    """
    job_data = next(iter(runs.values())).job_data
    data_split = job_data.dataset.split(split)
    groups = row_groups(job_data, data_split, classes)
    rows_N = sample(job_data, data_split, groups, ROWS, seed)
    if len(rows_N) < FEWEST:
        raise PlotSkipped(f"{len(rows_N)} {split} rows of these classes are too few")
    texts = row_texts(job_data, data_split, rows_N)
    rows = []
    for setting, run in runs.items():
        points_N2 = project(array(run.embeddings[split])[rows_N], seed)
        for group in groups:
            indices = np.flatnonzero(np.isin(rows_N, group.rows)).tolist()
            rows.append(points(setting, group.name, [texts[i] for i in indices], points_N2[indices].tolist()))
    marks = {group.name: Mark(group.colour, marker) for marker, group in enumerate(groups)}
    caption = _caption(job_data, f"{len(rows_N):,} {split} rows", len(runs))
    return panel_plot(TSNE_NAME, f"The representation of {split} rows (t-SNE)", caption, rows, marks)


def _caption(job_data: JobData, rows: str, panels: int) -> str:
    name = picture_labels(job_data)
    levels = list(class_parents(job_data.dataset, name))
    singular, plural = WORDS[job_data.task]
    marks = f"A mark is a {singular} of {name}"
    if levels:
        marks += f", a colour its {levels[-1]}"
    suffix = ", the same in every panel" if panels > 1 else ""
    return (
        f"{rows} of a few {plural}{suffix}. {marks}. "
        "t-SNE keeps near rows near; distances between groups and the directions mean little."
    )


def neighbourhood_plot(
    runs: Mapping[str, StoredRun], split: str, instance: str | None = None, *, seed: int = 0
) -> Plot:
    """Returns a t-SNE plot of a row and its nearest training rows, one panel for each run.

    Source: kNN-MLTC Figure 3. `runs` are keyed by the name of the setting. `instance` is the id of the row;
    by default a random row with several labels is chosen. Raises PlotSkipped where there are too few training
    rows or no label, and UserError for an unknown id.
    """
    first_run = next(iter(runs.values()))
    row = choose_row(first_run, split, instance, seed)
    [text] = row_texts(first_run.job_data, first_run.split(split), np.array([row]))
    names, rank_N = label_overlap(first_run, split, row)
    if len(rank_N) < FEWEST:
        raise PlotSkipped(f"{len(rank_N)} training rows are too few")
    count, kind, rows = min(NEIGHBOURS, len(rank_N)), f"the {split} row", []
    for setting, run in runs.items():
        query_1D = run.embeddings[split][row : row + 1]
        index_K = array(run.datastore().retrieve(query_1D, count).index[0])
        x_KD = torch.cat([query_1D, run.embeddings["train"][index_K]])
        [query_point, *nearest] = project(array(x_KD), seed).tolist()
        texts = row_texts(run.job_data, run.split("train"), index_K)
        rows.append(points(setting, kind, [text], [query_point]))
        for rank, name in enumerate(names):
            indices = np.flatnonzero(rank_N[index_K] == rank)
            rows.append(points(setting, name, [texts[i] for i in indices], [nearest[i] for i in indices]))
    marks = {kind: Mark(_BEST, _STAR, stands_out=True)}
    marks |= {name: Mark(_COLOURS[rank % len(_COLOURS)], rank) for rank, name in enumerate(names)}
    caption = (
        f"The star is the {split} row {text}. Around it are its {count} nearest training rows in the run's "
        "own representation, marked by what they share with it. t-SNE keeps near rows near; the directions "
        "mean nothing."
    )
    title = f"A {split} row and its {count} nearest training rows (t-SNE)"
    return panel_plot(NEIGHBOURHOOD_NAME, title, caption, rows, marks)


def choose_row(run: StoredRun, split: str, instance: str | None, seed: int) -> int:
    """Returns the index of the row with the id `instance`; if None, of a random row with several labels.

    Where no row has several labels, a row with one label is drawn. Raises PlotSkipped where no row has a
    label, and UserError for an unknown id.
    """
    ids = run.split(split).ids
    if instance is not None:
        if instance not in ids:
            hint = did_you_mean(instance, ids)
            raise UserError(f"no {split} row has this id{hint}", key="--row", found=instance)
        return ids.index(instance)
    count_M = array(run.labels(split).counts())
    if not count_M.any():
        raise PlotSkipped(f"no {split} row has a label")
    candidates = np.flatnonzero(count_M >= min(2, count_M.max()))
    return int(np.random.default_rng(seed).choice(candidates))


def label_overlap(run: StoredRun, split: str, row: int) -> tuple[list[str], Array]:
    """Ranks training rows by the labels that they share with a row.

    Returns the names of the ranks, and the rank of each training row (N,) int64. A rank is the number of
    shared labels or ratings, at most `MOST`; for single-label tasks, the number of the finest level at which
    the classes are equal, counted from 1, or 0.
    """
    job_data = run.job_data
    name = job_data.job.objective.classifier.labels
    if job_data.task == "single":
        levels = [*class_parents(job_data.dataset, name), name]
        names = [f"another {levels[0]}", *(f"same {level}" for level in levels)]
        return names, _shared_depth(job_data.train, run.split(split), levels, row)
    query = run.labels(split).take(torch.tensor([row]))
    shared_N = label_similarity(query, run.labels("train"))
    n_labels = int(query.counts()[0])
    max_shared = min(MOST, n_labels)
    word = "rating" if job_data.task == "aspects" else "label"
    names = [f"{format_count(count, word)} shared" for count in range(1, max_shared + 1)]
    if n_labels > MOST:
        names[-1] = f"{MOST} or more {word}s shared"
    return [f"no {word} shared", *names], np.minimum(shared_N, max_shared)


def _shared_depth(train: Split, split: Split, levels: Sequence[str], row: int) -> Array:
    """Returns the number (N,) of the finest level at which training rows have the class of `row`, or 0."""
    depth_N = np.zeros(len(train), dtype=np.int64)
    for number, level in enumerate(levels, start=1):
        class_N, row_class = as_classes(train.labels(level)), as_classes(split.labels(level))[row]
        depth_N[(class_N == row_class) & (row_class >= 0)] = number
    return depth_N
