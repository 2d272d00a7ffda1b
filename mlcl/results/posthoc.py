"""Scores finished runs at every point (k, lambda, tau) of a k-NN grid, and measures what neighbours cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import pandas as pd

from mlcl.config.job import KnnConfig
from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.results.compared_setting import ComparedSetting
from mlcl.results.knn_scores import JobDataCache, KnnScores, fetch, knn_scores, knn_table
from mlcl.results.runs import Runs
from mlcl.training.context import pick_device
from mlcl.training.embeddings import setting_of
from mlcl.training.export import load_model, write_export
from mlcl.training.export.model_index import DATASTORE
from mlcl.training.export.prediction_files import Item, batches, split_items
from mlcl.training.input_reader import Content
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT
from mlcl.training.stored_run import StoredRun

FIGURES = ("threshold", "val", "val_sd", "test", "test_sd")
COLUMNS = ("setting", "seeds", "which", "k", "lambda", "temperature", *FIGURES)


@dataclass(frozen=True)
class PosthocScores:
    """The scores of settings in `metric`, such as `accuracy`, at values of k, lambda and temperature.

    `chosen` has the columns `COLUMNS` and three rows for each setting: the best point of the grid on
    validation, the point of the job itself, and the model without neighbours. `threshold` is the mean of the
    seeds' thresholds, NaN if there is no single threshold for all labels. `points` has a row for each setting
    and point of its grid.
    """

    metric: str
    chosen: pd.DataFrame
    points: pd.DataFrame


def score_posthoc(runs: Runs, settings: Sequence[ComparedSetting], home: Path) -> PosthocScores:
    """Scores each setting at all points of its job's k-NN grid, and chooses the best mean on validation.

    Means are over the setting's seeds; test values are not used for the choice. Fitted baselines, which have
    no neighbours, are left out. Raises UserError where there are no other settings, the jobs are selected by
    different metrics, a run has no embeddings, its data set cannot be loaded, or the metric has no value.
    """
    fitted_words = [setting.word for setting in settings if setting.is_fitted]
    settings = [setting for setting in settings if not setting.is_fitted]
    if not settings:
        raise UserError("a fitted baseline has no embeddings", key="WHAT", found=fitted_words)
    metric = _selection_metric(settings)
    rows, points = [], []
    for setting in settings:
        scores, stored_runs = _score_grid(runs, setting, home)
        rows += _chosen_rows(setting, metric, scores, stored_runs)
        points.append(scores.points.assign(setting=setting.label))
    chosen = pd.DataFrame(rows, columns=pd.Index(COLUMNS)).astype({"k": int})
    return PosthocScores(metric, chosen, pd.concat(points))


def _selection_metric(settings: Sequence[ComparedSetting]) -> str:
    """Returns the last part of the metric that selects the jobs' models: `accuracy` of `knn/val/accuracy`."""
    metrics = {setting.job.get("evaluation.metric", "").rpartition("/")[2] for setting in settings}
    if len(metrics) > 1:
        raise UserError("these settings are selected by different metrics", key="WHAT", found=sorted(metrics))
    return metrics.pop()


def _score_grid(runs: Runs, setting: ComparedSetting, home: Path) -> tuple[KnnScores, list[StoredRun]]:
    """Returns the scores of the grid over the setting's seeds, and its runs, loaded into memory."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        folders = [fetch(runs, run.run_id, Path(scratch)) for run in setting.runs.values()]
        job_data_cache = JobDataCache(home)
        stored_runs = [StoredRun.read(folder, job_data_cache(folder), test=False) for folder in folders]
        try:
            jobs = [run.job_data.job for run in stored_runs]
            return knn_scores([knn_table(run) for run in stored_runs], jobs), stored_runs
        except ValueError as reason:
            raise UserError(str(reason), key="WHAT", found=setting.word) from None


def _chosen_rows(
    setting: ComparedSetting, metric: str, scores: KnnScores, stored_runs: Sequence[StoredRun]
) -> list[tuple[object, ...]]:
    """Returns the rows of `PosthocScores.chosen` for one setting, from its runs' metrics at these points."""
    zero_lambda = scores.points.index[scores.points["lambda"] == 0]
    indices = {"best on validation": scores.best, "the job's own": scores.own}
    if len(zero_lambda):
        indices["the model alone"] = int(zero_lambda[0])
    rows: list[tuple[object, ...]] = []
    for which, index in ((which, index) for which, index in indices.items() if index is not None):
        k, share, tau = scores.points[["k", "lambda", "temperature"]].to_numpy()[index]
        point = Setting(int(k), float(share), float(tau))
        metrics = pd.DataFrame([run.metrics(point) for run in stored_runs])
        values = metrics.reindex(columns=["knn/threshold", f"knn/val/{metric}", f"knn/test/{metric}"])
        mean, spread = values.mean(skipna=False), values.std(skipna=False)
        figures = (mean.iloc[0], mean.iloc[1], spread.iloc[1], mean.iloc[2], spread.iloc[2])
        rows.append(
            (setting.label, len(setting.runs), which, point.k, point.lambda_, point.temperature, *figures)
        )
    return rows


ROWS = 1000
"""The largest number of validation rows whose prediction is timed."""


class NeighbourCost(NamedTuple):
    """The cost of the neighbours of a setting's first seed. Source: kNN-MLTC Tables 7 and 8.

    `rows` and `bytes` are the size of the datastore in an export on disk. `model_ms` and `knn_ms` are the
    milliseconds per row of a prediction from raw rows on `device`, without and with `k` neighbours, measured
    on `timed` rows in batches of the job's evaluation.
    """

    setting: str
    rows: int
    bytes: int
    timed: int
    k: int
    model_ms: float
    knn_ms: float
    device: str


def measure_costs(runs: Runs, settings: Sequence[ComparedSetting], home: Path) -> list[NeighbourCost]:
    """Measures all settings except fitted baselines. Raises UserError where a run's model or data is gone."""
    cache = JobDataCache(home)
    return [_measure(runs, setting, cache) for setting in settings if not setting.is_fitted]


def _measure(runs: Runs, setting: ComparedSetting, cache: JobDataCache) -> NeighbourCost:
    run = next(iter(setting.runs.values()))
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        folder, export = Path(scratch), Path(scratch) / "export"
        mlflow_run = runs.get(run.run_id)
        assert mlflow_run is not None
        for name in (RESULT, EMBEDDINGS, MODEL):
            runs.download_artifact(mlflow_run, name, folder)
        job_data = cache(folder / MODEL)
        write_export(export, folder, job_data, {})
        size, device = (export / DATASTORE).stat().st_size, pick_device(job_data.job.train.device)
        model = load_model(export, device.type)
    items = list(islice(split_items(job_data.dataset.split("validation")), ROWS))
    knn = setting_of(job_data.job.evaluation.knn or KnnConfig())
    predictor, store = next(iter(model.index.predictors)), model.store
    assert store is not None

    def seconds(batch: Sequence[Item]) -> tuple[float, float]:
        start = time.perf_counter()
        output_MO = model.outputs([cast(Content, item.content) for item in batch])
        probabilities = model.probabilities(output_MO, predictor)
        prediction_end = time.perf_counter()
        store.blend(store.retrieve(output_MO, knn.k), probabilities, knn)
        return prediction_end - start, time.perf_counter() - prediction_end

    item_batches = list(batches(items, job_data.job.evaluation.batch_size))
    seconds(item_batches[0])  # warms up: a slow first call is not counted
    model_ms, knn_ms = (
        1000 * sum(durations) / len(items) for durations in zip(*map(seconds, item_batches), strict=True)
    )
    costs = (len(items), knn.k, model_ms, model_ms + knn_ms)
    return NeighbourCost(setting.label, len(store.labels), size, *costs, device.type)
