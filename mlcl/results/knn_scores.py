"""Scores finished runs at every point (k, lambda, tau) of a k-NN grid, from their logged embeddings.

Shapes: S seeds, P points of the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlcl.config import JobConfig, default_mode, load_job
from mlcl.config.job import KnnGrid
from mlcl.errors import UserError
from mlcl.evaluation.tasks import Array
from mlcl.plugins import files_are_run
from mlcl.results.runs import HOW_TO_KEEP, Runs
from mlcl.training.embeddings import setting_of
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import AXES, DIGITS
from mlcl.training.run_files import EMBEDDINGS, JOB, MODEL
from mlcl.training.stored_run import StoredRun

SPLITS = {"val": "validation", "test": "test"}


def has_embeddings(runs: Runs, run_id: str) -> bool:
    """Whether a run exists and has embeddings among its artifacts."""
    run = runs.get(run_id)
    return run is not None and runs.has_artifact(run, EMBEDDINGS)


def fetch(runs: Runs, run_id: str, scratch: Path) -> Path:
    """Downloads a run's embeddings and job to a folder in `scratch`, and returns the folder.

    Raises UserError where there is no such run, or it left no embeddings.
    """
    run, folder = runs.get(run_id), scratch / run_id
    if run is None:
        raise UserError("no such run in MLflow", key="RUN", found=run_id)
    if not runs.has_artifact(run, EMBEDDINGS):
        problem = "the run left no embeddings"
        raise UserError(problem, key=EMBEDDINGS, found=f"run {run_id}", allowed=f"in a sweep {HOW_TO_KEEP}")
    folder.mkdir(exist_ok=True)
    runs.download_artifact(run, EMBEDDINGS, folder)
    # Only the job, without the weights. Some stores download it to a subfolder `MODEL`, others do not.
    runs.download_artifact(run, f"{MODEL}/{JOB}", folder).replace(folder / JOB)
    return folder


class JobDataCache:
    """Loads the data of downloaded runs. Runs whose jobs differ only in the training seed share one copy."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._job_data: dict[str, JobData] = {}

    def __call__(self, folder: Path) -> JobData:
        """Returns the data of the run in `folder`. Raises UserError where it cannot be loaded."""
        job = load_job(folder / JOB)
        if job.plugins and not files_are_run():
            raise UserError("its job has plugin files, which are not run here", key="plugins")
        name = job.model_copy(update={"train": job.train.model_copy(update={"seed": 0})}).model_dump_json()
        if name not in self._job_data:
            self._job_data[name] = JobData.of(job, self._home, is_recorded=True)
        return self._job_data[name]


@dataclass(frozen=True)
class KnnScores:
    """The scores of a setting at all points (k, lambda, temperature); `seeds` is the number of its runs.

    `points` has one row per point. Its columns are `AXES`, `val` and `test` (means over seeds), `val_sd` and
    `test_sd` (standard deviations, NaN for one seed), and `in_grid`. `best` is the row of the grid with the
    best mean on validation, `own` the row of the jobs' k-NN parameters, None if they set none or differ.
    """

    points: pd.DataFrame
    best: int
    own: int | None
    seeds: int

    def points_along(self, axis: str) -> pd.DataFrame:
        """Returns the grid's points that vary along one axis; the other axes have the values of `best`."""
        mask = self.points["in_grid"]
        for other in AXES:
            if other != axis:
                mask = mask & (self.points[other] == self.points.loc[self.best, other])
        return self.points[mask]


def knn_grid(job: JobConfig) -> KnnGrid:
    """Returns the k-NN grid of the job, or the default grid if the job has none."""
    knn = job.evaluation.knn
    return knn.grid if knn is not None and knn.grid is not None else KnnGrid()


def knn_table(run: StoredRun) -> Array:
    """Returns a run's metric at every point of its job's k-NN grid, and at the k-NN parameters of the job.

    The result is a structured array with the fields `AXES`, `val` and `test`. Raises ValueError where the
    metric has no value.
    """
    grid = knn_grid(run.job_data.job)
    job_grid = _job_grid(run.job_data.job) or grid
    lambdas, temperatures = [*grid.lambda_, *job_grid.lambda_], [*grid.temperature, *job_grid.temperature]
    return run.grid([*grid.k, *job_grid.k], lambdas, temperatures)


def knn_scores(tables: Sequence[Array], jobs: Sequence[JobConfig]) -> KnnScores:
    """Averages the tables of a setting's runs (see `knn_table`), and finds the best and the jobs' own point.

    Jobs of different searches may have different k-NN parameters: only points that all tables have are kept,
    and `own` is None unless all jobs have the same parameters. Raises ValueError where no point is common.
    """
    frames = [pd.DataFrame(table).set_index(list(AXES)) for table in tables]
    common = frames[0].index
    for frame in frames[1:]:
        common = common[common.isin(frame.index)]
    if not len(common):
        raise ValueError("its runs have no k-NN parameters in common")
    points = common.to_frame(index=False)
    for split in SPLITS:
        value_SP = np.stack([frame.loc[common, split] for frame in frames])
        points[split] = value_SP.mean(axis=0)
        points[f"{split}_sd"] = value_SP.std(axis=0, ddof=1) if len(tables) > 1 else np.nan
    points["in_grid"] = _is_in_grid(points, knn_grid(jobs[0]))
    sign = 1 if default_mode(jobs[0].evaluation.metric) == "max" else -1
    rounded = np.round(sign * points["val"], DIGITS + 2)  # of equal means, the first point is the best
    best = np.nanargmax(np.where(points["in_grid"], rounded, np.nan))
    job_grid = _job_grid(jobs[0])
    if job_grid is None or any(_job_grid(job) != job_grid for job in jobs):
        return KnnScores(points, int(best), None, len(tables))
    return KnnScores(points, int(best), int(_is_in_grid(points, job_grid).argmax()), len(tables))


def _job_grid(job: JobConfig) -> KnnGrid | None:
    """Returns the k-NN parameters of the job as a grid of one point; None if the job sets none."""
    knn = job.evaluation.knn
    if knn is None:
        return None
    setting = setting_of(knn)
    return KnnGrid.model_validate(
        {"k": [setting.k], "lambda": [setting.lambda_], "temperature": [setting.temperature]}
    )


def _is_in_grid(points: pd.DataFrame, grid: KnnGrid) -> Array:
    """Whether each point is in the grid, (P,) bool. A k above the largest k in `points` counts as that k."""
    largest_k = points["k"].max()
    k = points["k"].isin([min(k, largest_k) for k in grid.k])
    is_inside = k & points["lambda"].isin(grid.lambda_) & points["temperature"].isin(grid.temperature)
    return np.asarray(is_inside)
