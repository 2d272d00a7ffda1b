"""Simulated searches of two arms, and the intervals that two designs of a sweep give for their difference.

`independent_searches` is mlcl's design: S searches, whose picks are confirmed. `resampled_search` is the peer
at equal cost: one search with all trials, whose best candidates are all confirmed and weighted by how often
each is the best one of a resample of the trials. Standard deviations and effects are in points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlcl.service.search.confirmation import entrant_count
from mlcl.significance.arm_errors import SEARCH_DEVIATION, arm_error, half_width, rows_variance

Array = NDArray[np.float64]
Random = np.random.Generator
RACE, RACE_SEEDS, BLOCKS, LEVEL = 2, 2, 50, 0.95
ROWS_ERROR = 0.5
"""The standard deviation of a difference that is due to 1,000 test rows."""
OWN_ROWS = 0.4
"""The share of `ROWS_ERROR` that differs between two settings of one arm."""


@dataclass(frozen=True)
class Corner:
    """The standard deviations of settings, validation rows and seeds, and the number of test rows."""

    settings: float
    validation: float
    seeds: float
    rows: int
    modes: bool

    @property
    def rows_error(self) -> float:
        """The standard deviation of a difference that is due to the test rows."""
        return ROWS_ERROR * float(np.sqrt(1000 / self.rows))


@dataclass(frozen=True)
class Design:
    """The searches of an arm, trials of a search, and fresh test seeds of each confirmed candidate.

    `candidates` is the number of candidates of a single search that are confirmed; 0 confirms the race's pick
    of each search alone.
    """

    searches: int = 3
    trials: int = 8
    seeds: int = 2
    candidates: int = 0

    @property
    def trainings(self) -> int:
        """The trainings of an arm: those of trials, race and confirmation."""
        if self.candidates:
            return self.trials + self.candidates * self.seeds
        entrants = entrant_count(RACE, self.trials)
        return self.searches * (self.trials + entrants * RACE_SEEDS + self.seeds)


class Settings(NamedTuple):
    """The confirmed settings of simulated experiments.

    `quality` and `validation` are the true and the validation quality [experiment, setting]. `own` is the
    test rows' part of each block that belongs to a setting alone [experiment, setting, block].
    """

    quality: Array
    validation: Array
    own: Array


class Made(NamedTuple):
    """The simulated test values of two arms.

    `control` and `heads` are test values [experiment, setting, seed]. `common` is the test rows' part of each
    block of the difference that all settings share [experiment, block], and `own` is each arm's own part.
    """

    control: Array
    heads: Array
    common: Array
    own: tuple[Array, Array]


def seed_noise(random: Random, shape: tuple[int, ...], corner: Corner) -> Array:
    """Returns noise of trainings with standard deviation `corner.seeds`, bimodal if `corner.modes`."""
    noise = random.standard_normal(shape)
    if corner.modes:
        noise = 0.4 * noise + np.sqrt(1 - 0.16) * ((random.random(shape) < 0.2) - 0.2) / 0.4
    return np.asarray(noise * corner.seeds, np.float64)


def search(random: Random, count: int, design: Design, corner: Corner, start: Settings | None) -> Settings:
    """Returns the confirmed settings; the first trial of each search is `start`'s best setting, if given."""
    shape = (count, design.searches, design.trials)
    quality = -random.gamma(2.0, 1.0, shape) / np.sqrt(2.0) * corner.settings
    validation = quality + random.normal(0, corner.validation, shape)
    if start is not None:
        quality[..., 0] = start.quality[:, : design.searches]
        validation[..., 0] = start.validation[:, : design.searches]
    score = validation + seed_noise(random, shape, corner)
    n_best = design.candidates or entrant_count(RACE, design.trials)
    best = np.argsort(-score, -1)[..., :n_best]
    if not design.candidates:
        race_scores = np.take_along_axis(validation, best, -1)
        race_scores = race_scores + seed_noise(random, (*race_scores.shape, RACE_SEEDS), corner).mean(-1)
        best = np.take_along_axis(best, race_scores.argmax(-1)[..., None], -1)
    picks = best.reshape(count, -1)
    pick_quality, pick_validation = (
        np.take_along_axis(values, best, -1).reshape(picks.shape) for values in (quality, validation)
    )
    deviation = OWN_ROWS * corner.rows_error * np.sqrt(BLOCKS / 2)
    own_part = random.normal(0, deviation, (*picks.shape, BLOCKS))
    if start is not None:
        own_part = np.where(
            (picks == 0)[..., None], start.own[:, :1] if design.candidates else start.own, own_part
        )
    return Settings(pick_quality, pick_validation, own_part)


def simulate(random: Random, count: int, design: Design, corner: Corner, effect: float, nested: bool) -> Made:
    """Simulates `count` experiments with heads better by `effect`; `nested` heads start at control picks."""
    control = search(random, count, design, corner, None)
    heads = search(random, count, design, corner, control if nested else None)
    common = effect + random.normal(0, corner.rows_error * np.sqrt(BLOCKS), (count, BLOCKS))
    values = [
        (settings.quality + settings.own.mean(-1))[..., None]
        + seed_noise(random, (*settings.quality.shape, design.seeds), corner)
        for settings in (control, heads)
    ]
    return Made(values[0], values[1] + common.mean(-1)[:, None, None], common, (control.own, heads.own))


def independent_searches(simulation: Made) -> tuple[Array, Array]:
    """Returns difference and half width of each experiment, computed as `compare_arms` does."""
    first, second = (
        arm_error(values, 100 * SEARCH_DEVIATION) for values in (simulation.control, simulation.heads)
    )
    difference = second.mean - first.mean
    jackknife_values = without_blocks(
        difference, simulation.common + simulation.own[1].mean(1) - simulation.own[0].mean(1)
    )
    variances = np.stack([first.variance, second.variance, rows_variance(jackknife_values)], -1)
    freedoms = np.stack([first.freedom, second.freedom, np.full(len(difference), BLOCKS - 1.0)], -1)
    return difference, half_width(variances, freedoms, LEVEL)


def resampled_search(simulation: Made, trials: int) -> tuple[Array, Array]:
    """Returns difference and half width, by resampling the recorded trials of one search of each arm.

    The variance of an arm is that of its candidates' means, each weighted by its share of the resamples.
    """
    shares = resampled_best(trials, simulation.control.shape[1])
    means, variances = [], []
    for values in (simulation.control, simulation.heads):
        setting_means = values.mean(-1)
        mean = (setting_means * shares).sum(-1)
        means.append(mean)
        spread = ((setting_means - mean[:, None]) ** 2 * shares).sum(-1)
        variances.append(spread / (1 - (shares**2).sum()))
    difference = means[1] - means[0]
    block_values = simulation.common + np.einsum("nsb,s->nb", simulation.own[1] - simulation.own[0], shares)
    parts = np.stack([*variances, rows_variance(without_blocks(difference, block_values))], -1)
    freedoms = np.full(parts.shape, len(shares) - 1.0)
    freedoms[:, 2] = BLOCKS - 1
    return difference, half_width(parts, freedoms, LEVEL)


def resampled_best(trials: int, candidates: int) -> Array:
    """Returns the probability that each of the best `candidates` is the best of a resample of the trials.

    The trial of rank r is the best if all draws of the resample have a rank of r or more, and not all above
    r.
    """
    rank = np.arange(candidates)
    shares = (1 - rank / trials) ** trials - (1 - (rank + 1) / trials) ** trials
    return np.asarray(shares / shares.sum(), np.float64)


def without_blocks(difference: Array, blocks: Array) -> Array:
    """Returns the difference without each block [experiment, block], from the blocks' means."""
    return difference[:, None] - (blocks - blocks.mean(-1, keepdims=True)) / (BLOCKS - 1)
