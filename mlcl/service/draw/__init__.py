"""Between a space and Optuna: settings of a trial, the point of a job, and the space in plain words."""

from mlcl.service.draw.describe import describe
from mlcl.service.draw.fit import Misfit, fit
from mlcl.service.draw.grid import grid_size
from mlcl.service.draw.trial import Suggests, distributions, draw, example

__all__ = ["Misfit", "Suggests", "describe", "distributions", "draw", "example", "fit", "grid_size"]
