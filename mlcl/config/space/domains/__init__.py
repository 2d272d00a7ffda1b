"""The kinds of domain, one module each."""

from mlcl.config.space.domain import Domain
from mlcl.config.space.domains.choice import Choice
from mlcl.config.space.domains.ranges import Float, Int
from mlcl.config.space.domains.simplex import Simplex

DOMAINS: tuple[type[Domain], ...] = (Float, Int, Choice, Simplex)
KINDS = {kind: domain for domain in DOMAINS for kind in domain.kinds}
"""By the word for it in a space file."""

__all__ = ["DOMAINS", "KINDS", "Choice", "Float", "Int", "Simplex"]
