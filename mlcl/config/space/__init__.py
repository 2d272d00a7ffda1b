"""The space file: what to vary. Checked against the job before anything starts."""

from mlcl.config.space.branches import cells, terms_of
from mlcl.config.space.condition import Condition, Term, covers, same
from mlcl.config.space.corners import corners
from mlcl.config.space.domain import Cell, Dimension, Domain, Misfit
from mlcl.config.space.domains import KINDS, Choice, Float, Int, Simplex
from mlcl.config.space.keys import POSTHOC
from mlcl.config.space.loader import load_space
from mlcl.config.space.parameter import Parameter
from mlcl.config.space.samplers import SAMPLERS, Sampler
from mlcl.config.space.search import Goal, Mode, SearchConfig, default_mode
from mlcl.config.space.space import Space

__all__ = [
    "KINDS",
    "POSTHOC",
    "SAMPLERS",
    "Cell",
    "Choice",
    "Condition",
    "Dimension",
    "Domain",
    "Float",
    "Goal",
    "Int",
    "Misfit",
    "Mode",
    "Parameter",
    "Sampler",
    "SearchConfig",
    "Simplex",
    "Space",
    "Term",
    "cells",
    "corners",
    "covers",
    "default_mode",
    "load_space",
    "same",
    "terms_of",
]
