"""Chooses the best of several baselines where validation rows are few, by redrawing these rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

from mlcl.config import JobConfig
from mlcl.data.validation_rows import redraws_validation
from mlcl.training.baseline_fits import baseline_result, validation_score
from mlcl.training.context import pick_device
from mlcl.training.job_data import JobData, open_dataset

DRAWS = 5
"""The number of draws of validation rows over which the scores of a baseline are averaged."""


def redrawn_scores(
    jobs: Mapping[str, JobConfig], home: Path, check_stop: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Returns the mean score of each baseline over `DRAWS` draws of the validation rows; larger is better.

    In each draw a baseline is fitted to the other rows of train and validation, and its settings are chosen
    on the drawn rows; the test split is not read. Empty if there is one baseline alone, if a job draws its
    own validation rows, or if the data set has enough of them, see `redraws_validation`.

    Args:
        jobs: The jobs of baselines on the same data, keyed by name.
        home: The folder of data and cache.
        check_stop: Called now and then; raises if a stop was requested.
    """
    first = next(iter(jobs.values()), None)
    if first is None or len(jobs) < 2 or first.data.validation_seed is not None:
        return {}
    if not redraws_validation(open_dataset(first, home, verify=False)):
        return {}
    device = pick_device(first.train.device).type

    def score(job: JobConfig, seed: int) -> float:
        data = job.data.model_copy(update={"validation_seed": seed})
        drawn = JobData.of(job.model_copy(update={"data": data}), home, verify=False)
        found = baseline_result(drawn, device, test=False, check_stop=check_stop)
        return validation_score(drawn)(found.probabilities["validation"])

    return {name: fmean(score(job, seed) for seed in range(DRAWS)) for name, job in jobs.items()}
