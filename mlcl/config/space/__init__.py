"""Space files: the keys of a job that a search varies, checked against the job before anything starts."""

from mlcl.config.space.domains import CLOSE, Choice, Dimension, Float, Int, Misfit, Simplex
from mlcl.config.space.keys import POSTHOC, nodes, same
from mlcl.config.space.loader import load_space
from mlcl.config.space.search import (
    HALF_SUFFIX,
    SAMPLERS,
    Goal,
    SearchConfig,
    default_mode,
    for_several,
)
from mlcl.config.space.space import Parameter, Space, branches, corners

__all__ = [
    "CLOSE",
    "HALF_SUFFIX",
    "POSTHOC",
    "SAMPLERS",
    "Choice",
    "Dimension",
    "Float",
    "Goal",
    "Int",
    "Misfit",
    "Parameter",
    "SearchConfig",
    "Simplex",
    "Space",
    "branches",
    "corners",
    "default_mode",
    "for_several",
    "load_space",
    "nodes",
    "same",
]
