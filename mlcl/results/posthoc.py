"""Scores finished runs at every point (k, lambda, tau) of a k-NN grid, from logged embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.results.compared_setting import ComparedSetting
from mlcl.results.knn_scores import JobDataCache, KnnScores, fetch_all, knn_scores, knn_table
from mlcl.results.runs import Runs
from mlcl.training.stored_run import StoredRun

FIGURES = ("threshold", "val", "val_sd", "test", "test_sd")
COLUMNS = ("setting", "seeds", "which", "k", "lambda", "temperature", *FIGURES)


@dataclass(frozen=True)
class PosthocScores:
    """The scores of jobs' settings at points of the k-NN grid, that is at values of k, lambda, temperature.

    Attributes:
        metric: The last part of the metric's name, such as `accuracy`.
        chosen: A frame with the columns `COLUMNS` and three rows for each setting: the best point of the grid
            on validation, the point of the job itself, and the model without neighbours. `threshold` is the
            mean of the seeds' thresholds, NaN if there is no single threshold for all labels.
        points: A frame with a row for each setting and each point of its grid.
    """

    metric: str
    chosen: pd.DataFrame
    points: pd.DataFrame


def score_posthoc(runs: Runs, settings: Sequence[ComparedSetting], home: Path) -> PosthocScores:
    """Scores each setting at all points of its job's k-NN grid, and chooses the best mean on validation.

    Means are over the setting's seeds; test values are not used for the choice. Fitted baselines, which have
    no neighbours, are left out. Raises UserError where the jobs are selected by different metrics, a run has
    no embeddings, its data set cannot be loaded, or the metric has no value.
    """
    settings = [each for each in settings if not each.is_fitted] or settings
    metric = _metric(settings)
    chosen, points = [], []
    for setting in settings:
        scores, stored = _scored(runs, setting, home)
        chosen += _rows(setting, metric, scores, stored)
        points.append(scores.points.assign(setting=setting.label))
    best = pd.DataFrame(chosen, columns=pd.Index(COLUMNS)).astype({"k": int})
    return PosthocScores(metric, best, pd.concat(points))


def _metric(settings: Sequence[ComparedSetting]) -> str:
    """Returns the last part of the metric that selects the jobs' models: `accuracy` of `knn/val/accuracy`."""
    found = {each.job.get("evaluation.metric", "").rpartition("/")[2] for each in settings}
    if len(found) > 1:
        raise UserError("these settings are selected by different metrics", key="WHAT", found=sorted(found))
    return found.pop()


def _scored(runs: Runs, setting: ComparedSetting, home: Path) -> tuple[KnnScores, list[StoredRun]]:
    """Returns the scores of the grid over the setting's seeds, and its runs, loaded into memory."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        ids = {setting.label: [run.run_id for run in setting.runs.values()]}
        (folders,) = fetch_all(runs, ids, Path(scratch)).values()
        job_data_cache = JobDataCache(home)
        stored = [StoredRun.read(folder, job_data_cache(folder), test=False) for folder in folders]
        try:
            return knn_scores([knn_table(run) for run in stored], stored[0].job_data.job), stored
        except ValueError as reason:
            raise UserError(str(reason), key="WHAT", found=setting.word) from None


def _rows(
    setting: ComparedSetting, metric: str, scores: KnnScores, stored: Sequence[StoredRun]
) -> list[tuple[object, ...]]:
    """Returns the rows of `PosthocScores.chosen` for one setting; computes all metrics at their points."""
    alone = scores.points.index[scores.points["lambda"] == 0]
    places = {"best on validation": scores.best, "the job's own": scores.own}
    if len(alone):
        places["the model alone"] = int(alone[0])
    rows: list[tuple[object, ...]] = []
    for which, place in places.items():
        if place is None:
            continue
        k, share, tau = scores.points[["k", "lambda", "temperature"]].to_numpy()[place]
        at = Setting(int(k), float(share), float(tau))
        found = pd.DataFrame([run.metrics(at) for run in stored])
        named = found.reindex(columns=["knn/threshold", f"knn/val/{metric}", f"knn/test/{metric}"])
        mean, spread = named.mean(skipna=False), named.std(skipna=False)
        figures = (mean.iloc[0], mean.iloc[1], spread.iloc[1], mean.iloc[2], spread.iloc[2])
        rows.append((setting.label, len(setting.runs), which, at.k, at.lambda_, at.temperature, *figures))
    return rows
