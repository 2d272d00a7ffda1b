"""Baselines by linear support vector machines (Fan et al. 2008, LIBLINEAR).

They minimise the squared hinge loss with an L2 penalty.
"""

from __future__ import annotations

from typing import Any

from mlcl.training.baselines.baseline import Baseline, Fitted, Problem
from mlcl.training.baselines.linear import one_vs_rest

VALUES = (0.1, 0.5, 2.0, 10.0)
TOLERANCE = 0.1
"""LIBLINEAR's own default; a smaller one takes twice as long and changes no metric in the third digit."""


def _machine(value: float) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=value, tol=TOLERANCE, random_state=0)


def _fit(problem: Problem) -> Fitted:
    return one_vs_rest(problem, _machine, VALUES)


TFIDF_SVM = Baseline("tfidf_svm", "TF-IDF and a linear SVM for each label", "tfidf", _fit, each_class=True)
