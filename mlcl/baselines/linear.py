"""Linear models, one against the rest for each class or label, and how their scores become probabilities.

Shapes: N training rows, n of them with a known class, M rows of another split, F features, A aspects (1 for
other tasks), C classes or labels, K = A C columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.baselines.baseline import Fitted, Problem, best_of
from mlcl.evaluation import Task
from mlcl.evaluation.tasks import Array, as_classes, as_rows, known_entries

NEVER = 20.0
"""The score of a class that all training rows have, and less it of one that none has."""


def target_columns(problem: Problem) -> Iterator[tuple[Array, Array]]:
    """For each column its rows (n,) int64, and which of them have the class (n,) bool.

    Rows whose class is missing, or that do not tell of a label, are left out.
    """
    if problem.task == "multi_label":
        targets = as_rows(problem.targets)
        has_NL, known_NL = targets.dense(torch.bool).numpy(), known_entries(targets)
        if known_NL is None:
            everything = np.arange(len(has_NL))
            yield from ((everything, has_N) for has_N in has_NL.T)
        else:
            telling = (np.flatnonzero(known_N) for known_N in known_NL.T)
            yield from ((rows, has_N[rows]) for rows, has_N in zip(telling, has_NL.T, strict=True))
        return
    class_NA = as_classes(problem.targets).reshape(len(problem.targets), -1)
    for class_N in class_NA.T:
        known = np.flatnonzero(class_N >= 0)
        yield from ((known, class_N[known] == each) for each in range(problem.n_classes))


def probabilities(task: Task, n_classes: int, score_MK: Array) -> Tensor:
    """Float32 probabilities: the sigmoid of a label's score, the softmax of the scores of classes."""
    score = torch.from_numpy(np.asarray(score_MK, dtype=np.float32))
    if task == "multi_label":
        return score.sigmoid()
    return (score.reshape(len(score), -1, n_classes) if task == "aspects" else score).softmax(-1)


def one_vs_rest(problem: Problem, make: Callable[[float], Any], values: Sequence[float]) -> Fitted:
    """One linear model a column, all with the same C, which validation chooses among ascending `values`.

    `make` gives an unfitted scikit-learn classifier with a `decision_function` for a C.
    """
    rows = _doubles(problem.rows)
    columns = list(target_columns(problem))
    everything = np.arange(rows.shape[0])

    def fit(value: float) -> Fitted:
        weight_KF = np.zeros((len(columns), rows.shape[1]), dtype=np.float32)
        bias_K = np.empty(len(columns))
        for number, (known, has) in enumerate(columns):
            problem.check_stop()
            if has.all() or not has.any():
                bias_K[number] = NEVER if len(has) and has.all() else -NEVER
                continue
            inside = rows if len(known) == len(everything) else rows[known]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one that has not converged is judged on validation, too
                model = make(value).fit(inside, has)
            weight_KF[number], bias_K[number] = model.coef_[0], model.intercept_[0]
        return linear(problem, weight_KF, bias_K)

    return best_of(problem, values, "C", fit)


def linear(problem: Problem, weight_KF: Array, bias_K: Array) -> Fitted:
    """The linear model with these weights."""
    task, n_classes = problem.task, problem.n_classes
    return Fitted(lambda rows: probabilities(task, n_classes, rows @ weight_KF.T + bias_K))


def _doubles(rows: Any) -> Any:
    """As liblinear reads them: each fit would convert them again."""
    from scipy.sparse import csr_matrix, issparse

    return csr_matrix(rows, dtype=np.float64) if issparse(rows) else np.asarray(rows, dtype=np.float64)
