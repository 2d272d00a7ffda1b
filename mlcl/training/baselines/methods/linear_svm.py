"""Baselines by linear support vector machines (Fan et al. 2008, LIBLINEAR).

They minimise the squared hinge loss with an L2 penalty.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mlcl.training.baselines.baseline import TEXT, TEXT_ENCODER, Baseline, Part
from mlcl.training.baselines.linear import one_vs_rest, restore_linear

VALUES = (0.1, 0.5, 2.0, 10.0)
TOLERANCE = 0.1
"""LIBLINEAR's default; a smaller tolerance takes twice as long and changes no metric in the third digit."""


def _build_svm(value: float) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=value, tol=TOLERANCE, random_state=0)


def _declare_baseline(name: str, title: str, reads: tuple[Part, ...], *, in_sweeps: bool = False) -> Baseline:
    title = f"{title} and a linear SVM for each label"
    fit = partial(one_vs_rest, make=_build_svm, values=VALUES)
    return Baseline(
        f"{name}_svm", title, reads, fit, each_class=True, in_sweeps=in_sweeps, restore=restore_linear
    )


TFIDF_SVM = _declare_baseline("tfidf", "TF-IDF", ("tfidf",), in_sweeps=True)
TEXT_SVM = _declare_baseline("text", *TEXT)
TEXT_ENCODER_SVM = _declare_baseline("text_encoder", *TEXT_ENCODER, in_sweeps=True)
