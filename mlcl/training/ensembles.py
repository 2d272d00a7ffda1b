"""Combines a run's classifier with the baseline that its job names in `evaluation.ensemble`.

Shapes: P the shape of a row's probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from torch import Tensor

from mlcl.evaluation import Ensemble, choose_ensemble
from mlcl.training.baseline_fits import baseline_result
from mlcl.training.baselines.jobs import baseline_job
from mlcl.training.job_data import JobData

ENSEMBLE = "ensemble/"
"""The prefix of the metrics of an ensemble."""


def partner_data(job_data: JobData) -> JobData:
    """Returns the job of the ensemble's baseline, with the same data and the same validation rows."""
    job = baseline_job(job_data.job, str(job_data.job.evaluation.ensemble))
    return replace(job_data, job=job, features=None, tokenizer=None, transfer=None)


@dataclass(frozen=True)
class Partner:
    """The baseline of an ensemble: its probabilities (N, *P) of the rows of each split, keyed by split."""

    job_data: JobData
    probabilities: Mapping[str, Tensor]

    @classmethod
    def of(cls, job_data: JobData, device: str, *, test: bool, check_stop: Callable[[], None]) -> Partner:
        """Reads the baseline's fit from the cache, or fits it; see `baseline_result` for the arguments."""
        found = baseline_result(partner_data(job_data), device, test=test, check_stop=check_stop)
        return cls(job_data, found.probabilities)

    def weigh(self, model: Tensor) -> WeighedPartner:
        """Chooses the baseline's weight on validation, from the model's probabilities (N, *P) there."""
        data, validation = self.job_data, self.job_data.dataset.split("validation")
        targets, facts = data.targets(validation), data.facts_of(validation)
        other = self.probabilities[validation.name]
        ensemble = choose_ensemble(data.task, model, other, targets, data.scoring, facts)
        return WeighedPartner(self, ensemble)


@dataclass(frozen=True)
class WeighedPartner:
    """The baseline of an ensemble with the weight that validation chose."""

    partner: Partner
    ensemble: Ensemble

    def combined(self, model: Tensor, split: str) -> Tensor:
        """Returns the ensemble's probabilities of a split's rows, from the model's (N, *P)."""
        return self.ensemble(self.partner.job_data.task, model, self.partner.probabilities[split])

    @property
    def metrics(self) -> dict[str, float]:
        """The three numbers of the ensemble, as the metrics that a run logs."""
        return {f"{ENSEMBLE}{name}": value for name, value in asdict(self.ensemble).items()}


def logged_ensemble(metrics: Mapping[str, float]) -> Ensemble | None:
    """Returns the ensemble of a run, from the metrics that it logged; None if it has none."""
    if f"{ENSEMBLE}weight" not in metrics:
        return None
    return Ensemble(*(metrics[f"{ENSEMBLE}{name}"] for name in ("weight", "scale", "shift")))
