"""A curve through noisy scores by Gaussian process regression (Rasmussen and Williams, 2006, chapter 2)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mlcl.evaluation.tasks import Array

FEWEST = 8
"""Fewest points of a curve: fewer do not tell noise from shape."""
POINTS = 60
"""Points of a curve."""


@dataclass(frozen=True)
class Curve:
    """Mean and standard deviation of the expected score at `x`; all (POINTS,) float64."""

    x: Array
    mean: Array
    deviation: Array


def fitted_curve(x: ArrayLike, score: ArrayLike, *, log: bool) -> Curve | None:
    """The expected score over x (N,), without the noise of a single score (N,).

    The kernel is a constant times a squared exponential plus white noise, with the hyperparameters of the
    largest marginal likelihood; with `log` over the logarithm of x. None for fewer than `FEWEST` points, and
    where x or the score is constant.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    known, y = np.asarray(x, float), np.asarray(score, float)
    if len(known) < FEWEST or np.ptp(known) == 0 or np.ptp(y) == 0:
        return None
    place = np.log(known) if log else known
    low, wide = place.min(), np.ptp(place)
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(0.3, (0.1, 10.0)) + WhiteKernel(0.3, (1e-4, 10.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    grid = np.linspace(0, 1, POINTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit((place - low)[:, None] / wide, y)
    mean, deviation = process.predict(grid[:, None], return_std=True)
    noise = process.kernel_.k2.noise_level * y.var()
    spread = np.sqrt(np.maximum(deviation**2 - noise, 0))
    ends = low + wide * grid
    return Curve(np.exp(ends) if log else ends, mean, spread)
