"""Optuna's samplers, with draws that depend on the study alone and not on the process.

Optuna's samplers carry a random state, and some a cache, from trial to trial, so that a restart would change
their next draws. Here a new sampler is built for each draw, seeded by the search seed, the trial's number and
the parameter's name. CMA-ES also needs its state, which Optuna keeps as a pickle in the trials' system
attributes. It is checked before it is loaded, since a pickle can run any code.

`CheckedCmaEsSampler` overrides a private method of Optuna 5.0; nothing else here or in
`study.py` and `pruner.py` uses private parts.
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

from mlcl.config import SearchConfig
from mlcl.config.space.search import SAMPLERS
from mlcl.errors import UserError

KNOWN = {
    ("cmaes._cma", "CMA"),
    ("cmaes._cmawm", "CMAwM"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
}
"""The only classes and functions that the pickle of a CMA-ES optimiser may refer to, as (module, name)."""


class CheckedCmaEsSampler(CmaEsSampler):
    """Optuna's CMA-ES, which raises UserError if its stored state refers to anything outside `KNOWN`."""

    def _concat_optimizer_attrs(self, optimizer_attrs: dict[str, str]) -> str:
        """Returns the hexadecimal text that Optuna unpickles next, after it was checked."""
        text = super()._concat_optimizer_attrs(optimizer_attrs)
        try:
            _Checked(io.BytesIO(bytes.fromhex(text))).load()
        except Exception as error:  # damaged pickles raise anything
            raise UserError(
                "the stored state of CMA-ES is not one; --fresh begins a new sweep", found=error
            ) from None
        return text


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return super().find_class(module, name)


def build_sampler(search: SearchConfig, left_out: int = 0) -> BaseSampler:
    """Builds the sampler that `search` names, for a study from which some earlier trials are left out."""
    sampler = SAMPLERS[search.sampler]
    options = {**sampler.options, **({"n_startup_trials": search.startup} if sampler.startup else {})}
    type_ = pkgutil.resolve_name(sampler.type)

    def make(seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made: BaseSampler = type_(seed=seed, **options)
            return made

    return _Seeded(make, search.seed, left_out)


class _Seeded(BaseSampler):
    """A sampler that builds a new, seeded sampler for each draw."""

    def __init__(self, make: Callable[[int], BaseSampler], seed: int, left_out: int) -> None:
        self._make, self._seed, self._left_out = make, seed, left_out
        self._joint: BaseSampler | None = None

    def _at(self, trial: FrozenTrial, name: str = "") -> BaseSampler:
        text = f"{self._seed}/{trial.number + self._left_out}/{name}".encode()
        return self._make(int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big"))

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        # Optuna calls sample_relative at once; it needs what this sampler has found out here.
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
        """Does nothing: BruteForceSampler would stop the study's optimize loop, which is not used here."""
