"""Between a space and Optuna: settings of a trial, the point of a job, and the space in plain words."""

from mlcl.config.space.domains import Misfit
from mlcl.service.search.sampling.description import describe, grid_size
from mlcl.service.search.sampling.job_to_point import agree, exact, fit, start
from mlcl.service.search.sampling.trial_settings import distributions, draw, example

__all__ = [
    "Misfit",
    "agree",
    "describe",
    "distributions",
    "draw",
    "exact",
    "example",
    "fit",
    "grid_size",
    "start",
]
