"""Fits a curve to noisy scores by Gaussian process regression (Rasmussen and Williams, 2006, chapter 2).

Shapes: N scores, D keys, G points of a curve.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FEWEST = 8
"""The smallest number of scores to fit: with fewer, noise and shape cannot be told apart."""
MOST = 500
"""The largest number of scores to fit: the time of a fit grows with the cube of this number."""
POINTS = 60
"""The number of points at which a fitted curve is evaluated."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """A fitted curve: mean and standard deviation of the expected score at `x`; all (POINTS,) float64."""

    x: Array
    mean: Array
    deviation: Array


def fitted_curve(x: ArrayLike, score: ArrayLike, *, log: bool) -> Curve | None:
    """Fits the expected score as a function of x, or of log x with `log`, from x and score (N,).

    The noise of single scores is not part of the curve's deviation. Scores that are not finite are left out.
    Returns None for fewer than `FEWEST` scores, and where x or the score is constant.
    """
    is_finite = np.isfinite(np.asarray(score, float))
    finite_x, score = np.asarray(x, float)[is_finite], np.asarray(score, float)[is_finite]
    if len(finite_x) < FEWEST or np.ptp(finite_x) == 0 or np.ptp(score) == 0:
        return None
    ends = finite_x.min(), finite_x.max()
    grid = np.geomspace(*ends, POINTS) if log else np.linspace(*ends, POINTS)
    mean, deviation = expected_scores(finite_x[:, None], score, grid[:, None], log=[log])
    return Curve(grid, mean, deviation)


def expected_scores(x_ND: Array, score: ArrayLike, at_GD: Array, *, log: list[bool]) -> tuple[Array, Array]:
    """Returns mean and standard deviation (G,) of the expected score at the points `at_GD`, from N scores.

    The kernel is a constant times a squared exponential (one length scale for each key) plus white noise; its
    hyperparameters maximise the marginal likelihood. Keys with `log` enter as their logarithms. Of more than
    `MOST` scores, only `MOST` are fitted, evenly spaced in the given order.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from threadpoolctl import threadpool_limits

    y = np.asarray(score, float)
    if len(y) > MOST:
        indices = np.linspace(0, len(y) - 1, MOST).astype(int)
        x_ND, y = x_ND[indices], y[indices]
    place_ND, place_GD = (
        np.stack([np.log(x) if is_log else x for x, is_log in zip(points.T, log, strict=True)], axis=1)
        for points in (x_ND, at_GD)
    )
    low, width = place_ND.min(axis=0), np.maximum(np.ptp(place_ND, axis=0), 1e-12)
    lengths = np.full(x_ND.shape[1], 0.3)
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(lengths, (0.1, 10.0)) + WhiteKernel(0.3, (1e-4, 10.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    # For such small matrices, one thread of BLAS is up to ten times as fast as several.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit((place_ND - low) / width, y)
    mean, deviation = process.predict((place_GD - low) / width, return_std=True)
    noise = process.kernel_.k2.noise_level * y.var()
    return mean, np.sqrt(np.maximum(deviation**2 - noise, 0))
