"""The space file: what to vary. Checked against the job before anything starts."""

from mlcl.config.space.branches import cells, corners, terms_of
from mlcl.config.space.condition import Condition, covers, same
from mlcl.config.space.domain import Dimension, Misfit
from mlcl.config.space.domains import Choice, Float, Int, Simplex
from mlcl.config.space.keys import POSTHOC
from mlcl.config.space.loader import load_space
from mlcl.config.space.search import HALF_SUFFIX, SAMPLERS, Goal, SearchConfig, default_mode
from mlcl.config.space.space import Parameter, Space

__all__ = [
    "HALF_SUFFIX",
    "POSTHOC",
    "SAMPLERS",
    "Choice",
    "Condition",
    "Dimension",
    "Float",
    "Goal",
    "Int",
    "Misfit",
    "Parameter",
    "SearchConfig",
    "Simplex",
    "Space",
    "cells",
    "corners",
    "covers",
    "default_mode",
    "load_space",
    "same",
    "terms_of",
]
