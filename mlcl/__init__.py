"""mlcl: which multi-label or hierarchical contrastive loss works on your data, and at which settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlcl._version import __version__

if TYPE_CHECKING:
    from mlcl.api.answer import load
    from mlcl.api.comparing import compare, prepare
    from mlcl.api.sweeping import sweep
    from mlcl.api.training import run
    from mlcl.training.export import load_model

__all__ = ["__version__", "compare", "load", "load_model", "prepare", "run", "sweep"]

_HOMES = {
    "compare": "mlcl.api.comparing",
    "load": "mlcl.api.answer",
    "load_model": "mlcl.training.export",
    "prepare": "mlcl.api.comparing",
    "run": "mlcl.api.training",
    "sweep": "mlcl.api.sweeping",
}
"""The module of each function, imported at its first use: a loss on its own needs torch alone."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mlcl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
