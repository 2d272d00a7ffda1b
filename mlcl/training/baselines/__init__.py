"""Baselines: models that scikit-learn fits in seconds, to compare trained networks with.

`baseline.py` declares a baseline, `methods/` has one kind per file, and `jobs.py` makes their jobs, which
`mlcl.training.experiment` runs.
"""

from mlcl.training.baselines.baseline import BASELINES, Baseline, Fitted, Problem

__all__ = ["BASELINES", "Baseline", "Fitted", "Problem"]
