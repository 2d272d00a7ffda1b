"""Samplers whose draws depend on the study alone, not on how often the process was restarted.

Optuna's samplers carry a random state, and some a cache, from trial to trial: after a restart they go on
otherwise. Here each draw has a sampler of its own, seeded by the search seed, the number of the trial and
the name of the parameter. What is left to depend on is in the study: the finished trials and, where a
sampler keeps its distance from them, the settings of those that run. The state of CMA-ES, which Optuna keeps
in the study as a pickle, is checked: a pickle could run foreign code.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import pkgutil
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler
from optuna.trial import FrozenTrial, TrialState

from mlcl.config import Goal, SearchConfig
from mlcl.config.space.search import SAMPLERS, for_several
from mlcl.errors import UserError

KNOWN = {
    ("cmaes._cma", "CMA"),
    ("cmaes._cmawm", "CMAwM"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
}
"""What the state of an optimiser is made of."""


class CheckedCmaEsSampler(CmaEsSampler):
    """Raises UserError where the study holds anything but the state of an optimiser."""

    def _concat_optimizer_attrs(self, optimizer_attrs: dict[str, str]) -> str:
        """What Optuna unpickles next."""
        text = super()._concat_optimizer_attrs(optimizer_attrs)
        try:
            _Checked(io.BytesIO(bytes.fromhex(text))).load()
        except Exception as error:  # damaged pickles raise anything
            raise UserError(
                "the study's state of CMA-ES is not one; --fresh begins a new study", found=error
            ) from None
        return text


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def build_sampler(search: SearchConfig, goals: Sequence[Goal]) -> BaseSampler:
    """The sampler that `search` names.

    Raises UserError where it cannot follow that many goals.
    """
    sampler = SAMPLERS[search.sampler]
    if len(goals) > 1 and not sampler.several_goals:
        raise UserError(
            f"{sampler.title} follows one metric",
            key="search.sampler",
            found=f"{search.sampler} with {', '.join(goal.metric for goal in goals)}",
            allowed=for_several(),
        )
    options = {**sampler.options, **({"n_startup_trials": search.startup} if sampler.startup else {})}
    type_ = pkgutil.resolve_name(sampler.type)

    def make(seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made: BaseSampler = type_(seed=seed, **options)
            return made

    return _Seeded(make, search.seed)


class _Seeded(BaseSampler):
    """A fresh sampler for each draw, seeded by where the draw stands."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed
        self._joint: BaseSampler | None = None

    def _at(self, trial: FrozenTrial, name: str = "") -> BaseSampler:
        place = f"{self._seed}/{trial.number}/{name}".encode()
        return self._make(int.from_bytes(hashlib.blake2b(place, digest_size=4).digest(), "big"))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        # The draw follows at once and needs what the sampler has found out here.
        self._joint = self._at(trial)
        return self._joint.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        assert self._joint is not None
        return self._joint.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        sampler = self._at(trial, param_name)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Nothing: a brute force that is through would stop a loop that does not exist."""
