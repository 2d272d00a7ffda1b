"""Baselines by logistic regression.

On sparse rows each label has a regression of its own (LIBLINEAR); on dense rows all labels are fitted at
once. Pixels and a data set's own vectors are standardised; rows of unit length are read as they are.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from mlcl.training.baselines.baseline import TEXT, TEXT_ENCODER, Baseline, Fitted, Part, Problem, best_of
from mlcl.training.baselines.linear import DenseLogistic, one_vs_rest, restore_linear

SPARSE_VALUES = (1.0, 10.0, 100.0)
STANDARDISED_VALUES = (0.001, 0.01, 0.1, 1.0)
UNIT_VALUES = (0.1, 1.0, 10.0, 100.0)
TOLERANCE = 0.1
"""LIBLINEAR's default."""

Weight = Literal["balanced"] | None


def logistic_machine(weight: Weight, value: float) -> Any:
    """Returns LIBLINEAR's logistic regression for sparse rows, with C = `value` and this class weight."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        C=value, tol=TOLERANCE, solver="liblinear", dual=True, class_weight=weight, random_state=0
    )


def _declare_text_baseline(
    name: str, title: str, reads: tuple[Part, ...], *, weight: Weight = None, in_sweeps: bool = False
) -> Baseline:
    title = f"{title} and logistic regression for each label"
    if weight == "balanced":
        title += ", in which rows with and without it weigh the same"
    fit = partial(one_vs_rest, make=partial(logistic_machine, weight), values=SPARSE_VALUES)
    return Baseline(name, title, reads, fit, each_class=True, in_sweeps=in_sweeps, restore=restore_linear)


def _declare_dense_baseline(
    reads: Part, features: str, *, unit: bool = False, in_sweeps: bool = True
) -> Baseline:
    def fit(problem: Problem) -> Fitted:
        values = UNIT_VALUES if unit else STANDARDISED_VALUES
        return best_of(problem, values, "C", DenseLogistic.of(problem, standardise=not unit).fit)

    title = f"{features} and logistic regression"
    return Baseline(f"{reads}_logreg", title, (reads,), fit, in_sweeps=in_sweeps, restore=restore_linear)


TFIDF_LOGREG = _declare_text_baseline("tfidf_logreg", "TF-IDF", ("tfidf",), in_sweeps=True)
TFIDF_LOGREG_BALANCED = _declare_text_baseline(
    "tfidf_logreg_balanced", "TF-IDF", ("tfidf",), weight="balanced", in_sweeps=True
)
TEXT_LOGREG = _declare_text_baseline("text_logreg", *TEXT)
TEXT_ENCODER_LOGREG = _declare_text_baseline("text_encoder_logreg", *TEXT_ENCODER, in_sweeps=True)
PIXELS_LOGREG = _declare_dense_baseline("pixels", "pixels")
COLUMN_LOGREG = _declare_dense_baseline("column", "the data set's vectors")
WORDS_LOGREG = _declare_dense_baseline(
    "words", "means of static vectors of words", unit=True, in_sweeps=False
)
ENCODER_LOGREG = _declare_dense_baseline("encoder", "outputs of the frozen encoder", unit=True)
