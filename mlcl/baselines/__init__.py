"""Baselines: what a user would pick in place of a contrastive loss, fitted with scikit-learn in seconds."""

from mlcl.baselines.baseline import BASELINES, Baseline, Fitted, Problem

__all__ = ["BASELINES", "Baseline", "Fitted", "Problem"]
