"""The ensemble of a run's classifier with the baseline that its job names in `evaluation.ensemble`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from torch import Tensor

from mlcl.evaluation import Ensemble, choose_ensemble
from mlcl.training.baselines.jobs import baseline_job
from mlcl.training.job_data import JobData

ENSEMBLE = "ensemble/"
"""The prefix of the metrics of an ensemble."""


def member_data(job_data: JobData) -> JobData:
    """Returns the job of the ensemble's baseline, with the same data and the same validation rows."""
    job = baseline_job(job_data.job, str(job_data.job.evaluation.ensemble))
    return replace(job_data, job=job, features=None, tokenizer=None, transfer=None)


def weigh(job_data: JobData, model: Tensor, member: Tensor) -> Ensemble:
    """Chooses the baseline's weight by the job's metric, from both models' probabilities on validation."""
    validation = job_data.dataset.split("validation")
    targets, facts = job_data.targets(validation), job_data.facts_of(validation)
    return choose_ensemble(job_data.task, model, member, targets, job_data.scoring, facts)


def ensemble_metrics(ensemble: Ensemble) -> dict[str, float]:
    """Returns the three numbers of an ensemble, as the metrics that a run logs."""
    return {f"{ENSEMBLE}{name}": value for name, value in asdict(ensemble).items()}


def logged_ensemble(metrics: Mapping[str, float]) -> Ensemble | None:
    """Returns the ensemble of a run, from the metrics that it logged; None if it has none."""
    if f"{ENSEMBLE}weight" not in metrics:
        return None
    return Ensemble(*(metrics[f"{ENSEMBLE}{name}"] for name in ("weight", "scale", "shift")))
