"""A row and its nearest training rows on a plane, marked by the labels that they share with it.

Shapes: N training rows, K neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mlcl.data import Split, class_parents
from mlcl.errors import UserError, did_you_mean
from mlcl.evaluation.knn import label_similarity
from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows
from mlcl.report.plots import style
from mlcl.report.plots.groups import row_texts
from mlcl.report.plots.panels import Cloud, Panel, panel_plot
from mlcl.report.plots.plot import Plot, PlotSkipped
from mlcl.report.plots.tsne import FEWEST, project
from mlcl.training.stored_run import StoredRun

NAME = "tsne_neighbours"
NEIGHBOURS = 80
"""Nearest training rows that are drawn, as in the paper."""
MOST = 5
"""The number of shared labels from which on neighbours have the same mark."""
_STAR = style.MARKERS.index("*")
_BEST = style.COLOURS.index(style.BEST)
_COLOURS = [colour for colour in range(len(style.COLOURS)) if colour != _BEST]


@dataclass(frozen=True, eq=False)
class Instance:
    """A row of a split with its `text`. `names[rank_N]` says what each training row shares with it."""

    split: str
    row: int
    text: str
    names: list[str]
    rank_N: Array


def neighbourhood_plot(
    runs: Mapping[str, StoredRun], split: str, instance: str | None = None, *, seed: int = 0
) -> Plot:
    """t-SNE of a split's row and its neighbours, a panel for each setting. Source: kNN-MLTC Figure 3.

    `instance` is the id of the row; by default `seed` draws one with several labels. Raises PlotSkipped where
    there are too few training rows or no label, and UserError for an unknown id.
    """
    run = next(iter(runs.values()))
    row = choose_row(run, split, instance, seed)
    [text] = row_texts(run.job_data, run.split(split), np.array([row]))
    names, rank_N = label_overlap(run, split, row)
    if len(rank_N) < FEWEST:
        raise PlotSkipped(f"{len(rank_N)} training rows are too few")
    star = Instance(split, row, text, names, rank_N)
    panels = [Panel(setting, _clouds(each, star, seed)) for setting, each in runs.items()]
    count = min(NEIGHBOURS, len(rank_N))
    caption = (
        f"The star is the {split} row {text}. Around it are its {count} nearest training rows in the run's "
        "own representation, marked by what they share with it. t-SNE keeps near rows near; the directions "
        "mean nothing."
    )
    title = f"A {split} row and its {count} nearest training rows (t-SNE)"
    return panel_plot(NAME, title, caption, panels)


def choose_row(run: StoredRun, split: str, instance: str | None, seed: int) -> int:
    """The index of the row of id `instance`, or of a random one with several labels, or else with one."""
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
    """What training rows share with a row of a split: the names of the ranks, and the rank of each row (N,).

    A rank is the number of shared labels or ratings; of single labels, the finest level with the same class.
    """
    job_data = run.job_data
    name = job_data.job.objective.classifier.labels
    if job_data.task == "single":
        levels = [*class_parents(job_data.dataset, name), name]
        names = [f"another {levels[0]}", *(f"same {level}" for level in levels)]
        return names, _depth(job_data.train, run.split(split), levels, row)
    query = run.labels(split).take(torch.tensor([row]))
    shared_N = label_similarity(query, run.labels("train"))
    own = int(query.counts()[0])
    most = min(MOST, own)
    what = "rating" if job_data.task == "aspects" else "label"
    names = [_counted(count, what, or_more=count == MOST < own) for count in range(most + 1)]
    return names, np.minimum(shared_N, most)


def _counted(count: int, what: str, or_more: bool) -> str:
    if count == 0:
        return f"no {what} shared"
    return f"{count}{' or more' if or_more else ''} {what}{'s' if count > 1 or or_more else ''} shared"


def _depth(train: Split, split: Split, levels: Sequence[str], row: int) -> Array:
    """The number (N,) of the finest level at which a training row has the class of the row; 0 for none."""
    depth_N = np.zeros(len(train), dtype=np.int64)
    for number, level in enumerate(levels, start=1):
        class_N, own = _classes(train.labels(level)), _classes(split.labels(level))[row]
        depth_N[(class_N == own) & (own >= 0)] = number
    return depth_N


def _classes(labels: Tensor | LabelRows) -> Array:
    assert isinstance(labels, Tensor)
    return array(labels)


def _clouds(run: StoredRun, star: Instance, seed: int) -> tuple[Cloud, ...]:
    query_1D = run.embeddings[star.split][star.row : star.row + 1]
    index_K = array(run.datastore().retrieve(query_1D, min(NEIGHBOURS, len(star.rank_N))).index[0])
    x_KD = torch.cat([query_1D, run.embeddings["train"][index_K]])
    [here, *points] = project(array(x_KD), seed).tolist()
    texts = row_texts(run.job_data, run.split("train"), index_K)
    clouds = [Cloud(f"the {star.split} row", _BEST, _STAR, here[:1], here[1:], [star.text], stands_out=True)]
    for rank, name in enumerate(star.names):
        alike = np.flatnonzero(star.rank_N[index_K] == rank)
        x, y = ([points[i][axis] for i in alike] for axis in (0, 1))
        clouds.append(Cloud(name, _COLOURS[rank % len(_COLOURS)], rank, x, y, [texts[i] for i in alike]))
    return tuple(clouds)
