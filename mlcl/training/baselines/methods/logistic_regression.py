"""Baselines by logistic regression.

On sparse rows each label has a regression of its own (LIBLINEAR); on dense rows all labels are fitted at
once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from mlcl.training.baselines.baseline import Baseline, Fitted, Problem, Reads, best_of
from mlcl.training.baselines.linear import DenseLogistic, one_vs_rest

SPARSE_VALUES = (1.0, 10.0, 100.0)
DENSE_VALUES = (0.001, 0.01, 0.1, 1.0)
TOLERANCE = 0.1
"""LIBLINEAR's own default."""

Weight = Literal["balanced"] | None


def _machine(weight: Weight, value: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        C=value, tol=TOLERANCE, solver="liblinear", dual=True, class_weight=weight, random_state=0
    )


def _sparse(weight: Weight, problem: Problem) -> Fitted:
    return one_vs_rest(problem, partial(_machine, weight), SPARSE_VALUES)


def _dense(problem: Problem) -> Fitted:
    model = DenseLogistic.of(problem)
    return best_of(problem, DENSE_VALUES, "C", model.fit)


def _declared(reads: Reads, what: str) -> Baseline:
    return Baseline(f"{reads}_logreg", f"{what} and logistic regression", reads, _dense)


TFIDF_LOGREG = Baseline(
    "tfidf_logreg", "TF-IDF and logistic regression for each label", "tfidf", partial(_sparse, None), True
)
TFIDF_LOGREG_BALANCED = Baseline(
    "tfidf_logreg_balanced",
    "TF-IDF and logistic regression in which rows with and without a label weigh the same",
    "tfidf",
    partial(_sparse, "balanced"),
    True,
)
PIXELS_LOGREG = _declared("pixels", "pixels")
COLUMN_LOGREG = _declared("column", "the data set's vectors")
ENCODER_LOGREG = _declared("encoder", "outputs of the frozen encoder")
