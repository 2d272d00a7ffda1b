"""How trials can be proposed: what each sampler needs, and which class of Optuna it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sampler:
    """One way to propose trials.

    `type` is the class, as module:name, that is called with `options`, a seed and, with `startup`, the number
    of random trials that come first. `exhaustive`: it tries every combination once and ends, so that nothing
    may be continuous. `several_goals`: it follows more than one metric.
    """

    name: str
    title: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)
    startup: bool = False
    exhaustive: bool = False
    several_goals: bool = True


TPE = Sampler(
    "tpe",
    "tree-structured Parzen estimators",
    "optuna.samplers:TPESampler",
    # No constant liar: a draw would depend on which trials happened to run at that moment.
    {"multivariate": True, "group": True, "constant_liar": False},
    startup=True,
)
GP = Sampler(
    "gp",
    "a Gaussian process",
    "optuna.samplers:GPSampler",
    {"warn_independent_sampling": False},
    startup=True,
)
CMAES = Sampler(
    "cmaes",
    "CMA-ES",
    "mlcl.service.search.cmaes:CheckedCmaEsSampler",
    # The margin keeps the variance of whole numbers from collapsing. Choices are drawn at random.
    {"with_margin": True, "warn_independent_sampling": False},
    startup=True,
    several_goals=False,
)
RANDOM = Sampler("random", "random draws", "optuna.samplers:RandomSampler")
BRUTE_FORCE = Sampler(
    "brute_force",
    "every combination once",
    "optuna.samplers:BruteForceSampler",
    exhaustive=True,
)
SAMPLERS = {sampler.name: sampler for sampler in (TPE, GP, CMAES, RANDOM, BRUTE_FORCE)}
