"""Baselines: models that scikit-learn fits in seconds, with which trained networks are compared.

`baseline.py` declares a baseline, `methods/` has one kind per file, and `jobs.py` makes the jobs of
baselines, which `mlcl.training.experiment` runs.
"""

from mlcl.training.baselines.baseline import BASELINES, Baseline, Fitted, Problem

__all__ = ["BASELINES", "Baseline", "Fitted", "Problem"]
