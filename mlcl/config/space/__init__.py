"""The space file: what to vary. Checked against the job before anything starts."""

from mlcl.config.space.branches import Cell, cells, terms_of
from mlcl.config.space.condition import Condition, Term, covers, same
from mlcl.config.space.corners import corners
from mlcl.config.space.domains import Choice, Domain, Float, Int, Parameter, Simplex
from mlcl.config.space.keys import POSTHOC
from mlcl.config.space.loader import load_space
from mlcl.config.space.search import Goal, Mode, SearchConfig, default_mode
from mlcl.config.space.space import Space

__all__ = [
    "POSTHOC",
    "Cell",
    "Choice",
    "Condition",
    "Domain",
    "Float",
    "Goal",
    "Int",
    "Mode",
    "Parameter",
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
