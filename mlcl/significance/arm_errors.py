"""Estimates variances of an arm's mean from searches, seeds and test rows, and the width of an interval.

All functions take arrays with any leading axes, so that a simulation estimates many experiments at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[np.float64]

SEARCH_DEVIATION = 0.016
"""The standard deviation of a search's outcome where an arm has one search, for a metric that is a share.

It is the largest one measured on the leaderboard's data sets, and keeps false verdicts below .05 in all
corners of benchmarks/verdicts.py.
"""


class ArmError(NamedTuple):
    """The mean of an arm over its searches, with the variance of this mean; each array has the leading axes.

    `freedom` has the degrees of freedom of the variance, `seeds` its part that comes from the seeds. The
    variance is NaN where the arm has only one training.
    """

    mean: Array
    variance: Array
    freedom: Array
    seeds: Array


def arm_error(values: Array, search_deviation: float = 0.0) -> ArmError:
    """Estimates mean and variance of an arm from `values` [..., search, seed], NaN where a training failed.

    Every search counts equally. With S >= 2 searches, the variance of the mean is the sample variance of the
    searches' means over S, which includes the seeds' part. With one search of K seeds it is the sample
    variance of the seeds over K, which holds for the setting of this search only, plus the square of
    `search_deviation`, which is taken as known.
    """
    finite = np.isfinite(values)
    count = finite.sum(-1)
    searched = count > 0
    means = np.where(searched, np.where(finite, values, 0.0).sum(-1) / np.maximum(count, 1), 0.0)
    n_searches = searched.sum(-1)
    mean = means.sum(-1) / n_searches
    between_squares = (np.where(searched, means - mean[..., None], 0.0) ** 2).sum(-1)
    within_squares = (np.where(finite, values - means[..., None], 0.0) ** 2).sum(-1)
    repeated = count > 1
    seed_variances = np.where(repeated, within_squares / np.maximum(count - 1, 1) / np.maximum(count, 1), 0.0)
    seed_variance = seed_variances.sum(-1) / np.maximum(repeated.sum(-1), 1) / n_searches
    single_search = n_searches == 1
    single_variance = np.where(repeated.any(-1), seed_variance, np.nan)
    parts = np.stack([single_variance, np.full_like(single_variance, search_deviation**2)], -1)
    variance = np.where(
        single_search, parts.sum(-1), between_squares / np.maximum(n_searches - 1, 1) / n_searches
    )
    freedoms = np.stack([count.max(-1) - 1.0, np.full_like(single_variance, np.inf)], -1)
    freedom = np.where(single_search, pooled_freedom(parts, freedoms), n_searches - 1.0)
    return ArmError(mean, variance, freedom, np.minimum(seed_variance, variance))


OTHERS = 1.0
"""The degrees of freedom that the other arms' mean variance adds to an arm's variance in `shared_errors`."""


class SharedErrors(NamedTuple):
    """The variance [..., arm] of each arm's mean, without the effects of units that all arms share.

    `freedom` is its degrees of freedom, `most` the largest degrees of freedom of a difference of two arms.
    """

    variance: Array
    freedom: float
    most: float


def shared_errors(values: Array) -> SharedErrors:
    """Estimates the variances of arms whose units draw the same data, from `values` [..., arm, unit].

    A unit is a search number, or a seed, that all arms have; no value may be NaN. In y_rs = m_r + b_s + e_rs,
    the effect b_s of unit s cancels in the difference of two arms. With R arms, S units and the residuals
    e_rs after arm and unit means,

        s_r^2 = sum_s e_rs^2 / ((S - 1) (1 - 1 / R))
        v_r = ((S - 1) s_r^2 + OTHERS mean_{q != r} s_q^2) / (S - 1 + OTHERS) / S

    with S - 1 + OTHERS degrees of freedom. One variance for all arms would have `most` = (R - 1) (S - 1)
    degrees of freedom, but is too small for an arm that scatters more than the others. With two arms, v_1 +
    v_2 is the variance of the mean of S paired differences.
    """
    arms, units = values.shape[-2:]
    centred = values - values.mean(-1, keepdims=True)
    residual = centred - centred.mean(-2, keepdims=True)
    own_variances = (residual**2).sum(-1) / ((units - 1) * (1 - 1 / arms))
    other_variances = (own_variances.sum(-1, keepdims=True) - own_variances) / (arms - 1)
    freedom = units - 1 + OTHERS
    variance = ((units - 1) * own_variances + OTHERS * other_variances) / freedom / units
    return SharedErrors(variance, freedom, float((arms - 1) * (units - 1)))


def rows_variance(differences: Array) -> Array:
    """Returns the delete-a-block jackknife variance of a difference, from `differences` [..., B].

    Each of the B values leaves out one block of test rows. The variance is (B - 1) / B times the sum of
    squared distances from their mean; it has B - 1 degrees of freedom.
    """
    blocks = differences.shape[-1]
    distances = differences - differences.mean(-1, keepdims=True)
    return np.asarray((blocks - 1) / blocks * (distances**2).sum(-1), np.float64)


def pooled_freedom(variances: Array, freedoms: Array) -> Array:
    """Returns the degrees of freedom of a sum of variances [..., part]: (sum V)^2 / sum (V^2 / df).

    Degrees of freedom below 1 count as 1; the result is infinite if all variances are 0.
    """
    denominator = (variances**2 / np.maximum(freedoms, 1.0)).sum(-1)
    return np.where(
        denominator > 0, variances.sum(-1) ** 2 / np.where(denominator > 0, denominator, 1.0), np.inf
    )


def half_width(variances: Array, freedoms: Array, level: float) -> Array:
    """Returns half the width of Student's t interval whose variance is the sum of `variances` [..., part]."""
    quantile = scipy.special.stdtrit(pooled_freedom(variances, freedoms), (1 + level) / 2)
    return np.asarray(quantile * np.sqrt(variances.sum(-1)), np.float64)
