"""Finds which multi-label or hierarchical contrastive loss works on your data, and at which settings."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlcl._version import __version__
from mlcl.extras import missing_modules

if TYPE_CHECKING:
    from mlcl.api.answer import load
    from mlcl.api.comparing import compare, prepare
    from mlcl.api.sweeping import sweep
    from mlcl.api.training import baseline, run
    from mlcl.training.export import load_model

__all__ = ["__version__", "baseline", "compare", "load", "load_model", "prepare", "run", "sweep"]

_FUNCTIONS = {
    "baseline": ("mlcl.api.training", "sweep"),
    "compare": ("mlcl.api.comparing", "sweep"),
    "load": ("mlcl.api.answer", "sweep"),
    "load_model": ("mlcl.training.export", "train"),
    "prepare": ("mlcl.api.comparing", "train"),
    "run": ("mlcl.api.training", "sweep"),
    "sweep": ("mlcl.api.sweeping", "sweep"),
}
"""Maps each public function to its module, imported at the first use, and the extra that the module needs."""


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Returns the function `name` of `_FUNCTIONS`. Raises ImportError if its extra is not installed."""
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'mlcl' has no attribute {name!r}")
    module, extra = _FUNCTIONS[name]
    if text := missing_modules(extra):
        raise ImportError(f"mlcl.{name} {text}")
    function = globals()[name] = getattr(import_module(module), name)
    return function
