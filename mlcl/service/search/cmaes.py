"""CMA-ES with a checked state: Optuna keeps it in the study as a pickle, which could run foreign code."""

from __future__ import annotations

import io
import pickle
from typing import Any

from optuna.samplers import CmaEsSampler

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
