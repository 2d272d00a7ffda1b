"""Every (k, lambda, tau) of finished runs, from the embeddings that they left: nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from mlcl.errors import UserError
from mlcl.report.compared_settings import Contender
from mlcl.report.plots.collection import PlotSkipped
from mlcl.report.plots.knn_scores import KnnScores, knn_scores, knn_table
from mlcl.report.run_artifacts import JobDataCache, fetch_all
from mlcl.report.runs import Runs
from mlcl.training.stored_run import StoredRun

COLUMNS = ("setting", "seeds", "which", "k", "lambda", "temperature", "val", "val_sd", "test", "test_sd")


@dataclass(frozen=True)
class Posthoc:
    """`chosen` has the points that matter, `points` all of them, each with the name of its setting."""

    metric: str
    chosen: pd.DataFrame
    points: pd.DataFrame


def posthoc(runs: Runs, contenders: Sequence[Contender], home: Path) -> Posthoc:
    """Scores the grid of each setting's job over its seeds; the best mean on validation is chosen.

    The test split is told for what was chosen, and chooses nothing. Raises UserError where the jobs are
    selected by different metrics, where a run left no embeddings, where its data set cannot be had, and where
    the metric has no value.
    """
    metric = _metric(contenders)
    chosen, points = [], []
    for contender in contenders:
        scores = _scores(runs, contender, home)
        chosen += _rows(contender, scores)
        points.append(scores.points.assign(setting=contender.label))
    best = pd.DataFrame(chosen, columns=pd.Index(COLUMNS)).astype({"k": int})
    return Posthoc(metric, best, pd.concat(points))


def _metric(contenders: Sequence[Contender]) -> str:
    """The last part of the jobs' own metric: whether it is kNN's is what is varied."""
    found = {each.job.get("evaluation.metric", "").rpartition("/")[2] for each in contenders}
    if len(found) > 1:
        raise UserError("these settings are selected by different metrics", key="WHAT", found=sorted(found))
    return found.pop()


def _scores(runs: Runs, contender: Contender, home: Path) -> KnnScores:
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        ids = {contender.label: [run.run_id for run in contender.runs.values()]}
        (folders,) = fetch_all(runs, ids, Path(scratch)).values()
        job_data_cache = JobDataCache(home)
        try:
            tables = [
                knn_table(StoredRun.read(folder, job_data_cache(folder), test=False)) for folder in folders
            ]
        except PlotSkipped as reason:
            raise UserError(str(reason), key="WHAT", found=contender.word) from None
        return knn_scores(tables, job_data_cache(folders[0]).job)


def _rows(contender: Contender, scores: KnnScores) -> list[tuple[object, ...]]:
    locked_folder = scores.points.index[scores.points["lambda"] == 0]
    places = {"best on validation": scores.best, "the job's own": scores.own}
    if len(locked_folder):
        places["the model alone"] = int(locked_folder[0])
    return [
        (contender.label, len(contender.runs), which, *scores.points.loc[place, list(COLUMNS[3:])])
        for which, place in places.items()
        if place is not None
    ]
