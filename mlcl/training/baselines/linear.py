"""Linear models for baselines: one-vs-rest models of classes or labels, and dense logistic regression.

Shapes: N training rows, n of them with a known class, M rows of another split, F features, A aspects (1 for
other tasks), C classes or labels, K = A C columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation import Task
from mlcl.evaluation.tasks import Array, as_classes, as_rows, known_entries
from mlcl.training.baselines.baseline import Fitted, Problem, best_of

NEVER = 20.0
"""The constant score of a class that all training rows have; that of a class without a row is `-NEVER`."""
CONSTANT = 1e-6
"""The deviation of a feature, relative to |mean|, up to which it is an error of rounding."""
STEPS = 100
"""The largest number of L-BFGS steps for one C; each fit begins at the solution of the one before."""


def target_columns(problem: Problem) -> Iterator[tuple[Array, Array]]:
    """Yields for each of K columns the numbers (n,) of rows with a known target, and which are positive."""
    if problem.task == "multi_label":
        targets = as_rows(problem.targets)
        positive_NL, known_NL = targets.dense(torch.bool).numpy(), known_entries(targets)
        all_rows = np.arange(len(positive_NL))
        for label, positive_N in enumerate(positive_NL.T):
            rows = all_rows if known_NL is None else np.flatnonzero(known_NL[:, label])
            yield rows, positive_N[rows]
        return
    class_NA = as_classes(problem.targets).reshape(len(problem.targets), -1)
    for class_N in class_NA.T:
        known_rows = np.flatnonzero(class_N >= 0)
        yield from ((known_rows, class_N[known_rows] == number) for number in range(problem.n_classes))


def probabilities(task: Task, n_classes: int, score_MK: Array) -> Tensor:
    """Returns float32 probabilities: sigmoids of the labels' scores, or the softmax over classes' scores."""
    score = torch.from_numpy(np.asarray(score_MK, dtype=np.float32))
    if task == "multi_label":
        return score.sigmoid()
    return (score.reshape(len(score), -1, n_classes) if task == "aspects" else score).softmax(-1)


def one_vs_rest(
    problem: Problem,
    make: Callable[[float], Any],
    values: Sequence[float],
    columns: Sequence[tuple[Array, Array]] | None = None,
    finish: Callable[[Array, Array], Fitted] | None = None,
) -> Fitted:
    """Fits scikit-learn's linear classifier `make(C)` to each column; validation chooses C among `values`.

    A column has row numbers (n,) and whether each of these rows is positive (n,); the default of `columns` is
    `target_columns`. `finish` returns the fitted baseline for weights (K, F) and biases (K,); its default is
    `linear_model`.
    """
    from scipy.sparse import csr_matrix, issparse

    kind = csr_matrix if issparse(problem.rows) else np.asarray
    rows = kind(problem.rows, dtype=np.float64)  # liblinear would convert them at each fit
    columns = list(target_columns(problem)) if columns is None else columns
    finish = finish or partial(linear_model, problem)

    def fit(value: float) -> Fitted:
        weight_KF = np.zeros((len(columns), rows.shape[1]), dtype=np.float32)
        bias_K = np.empty(len(columns))
        for number, (rows_n, positive_n) in enumerate(columns):
            problem.check_stop()
            if positive_n.all() or not positive_n.any():
                bias_K[number] = NEVER if len(positive_n) and positive_n.all() else -NEVER
                continue
            column_rows = rows if len(rows_n) == rows.shape[0] else rows[rows_n]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a model that has not converged is scored, too
                model = make(value).fit(column_rows, positive_n)
            weight_KF[number], bias_K[number] = model.coef_[0], model.intercept_[0]
        return finish(weight_KF, bias_K)

    return best_of(problem, values, "C", fit)


def linear_model(problem: Problem, weight_KF: Array, bias_K: Array) -> Fitted:
    """Returns the linear model with weights (K, F) and biases (K,) as a fitted baseline."""
    tensors = {"weight": torch.from_numpy(weight_KF), "bias": torch.from_numpy(bias_K)}
    return Fitted(restore_linear(problem.task, problem.n_classes, tensors), tensors=tensors)


def restore_linear(task: Task, n_classes: int, tensors: Mapping[str, Tensor]) -> Callable[[Any], Tensor]:
    """Returns a linear model's function of rows (M, F) to probabilities, for `weight` (K, F), `bias` (K,)."""
    weight_KF, bias_K = tensors["weight"].numpy(), tensors["bias"].numpy()
    return lambda rows: probabilities(task, n_classes, rows @ weight_KF.T + bias_K)


@dataclass
class DenseLogistic:
    """Logistic regression on dense rows, all classes or labels at once.

    For a C it minimises, over weights W (K, F) and biases b, with features x that are standardised or not,

        C sum_n loss(W x_n + b, y_n) + |W|^2 / 2

    where the loss is the binary cross-entropy summed over labels, or the cross-entropy of a row's class,
    summed over aspects. Unknown classes and labels contribute nothing.

    `x` are the training rows (N, F) less `mean`, divided by `scale` (F,), 1 for constant features. `y` are
    labels (N, L) float32, or classes (N, A). `known` is 0 where a row's label is unknown, else 1. `start` are
    the parameters that the next fit begins with.
    """

    problem: Problem
    mean: Array
    scale: Array
    x: Tensor
    y: Tensor
    known: Tensor | None = None
    start: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, problem: Problem, *, standardise: bool = True) -> DenseLogistic:
        """Prepares a problem's training rows and targets; `standardise` scales features to mean 0, std 1."""
        rows = np.asarray(problem.rows, dtype=np.float32)
        mean_F, scale_F = np.zeros(rows.shape[1], np.float32), np.ones(rows.shape[1], np.float32)
        if standardise:
            mean, scale = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
            scale[scale <= CONSTANT * abs(mean)] = 1
            mean_F, scale_F = mean.astype(np.float32), scale.astype(np.float32)
        x = torch.from_numpy((rows - mean_F) / scale_F)
        if problem.task == "multi_label":
            targets = as_rows(problem.targets)
            known_NL = targets.known()
            return cls(
                problem, mean_F, scale_F, x, targets.dense(), None if known_NL is None else known_NL.float()
            )
        y = torch.from_numpy(as_classes(problem.targets)).reshape(len(rows), -1)
        return cls(problem, mean_F, scale_F, x, y)

    def fit(self, value: float) -> Fitted:
        """Fits the model with C = `value`, starting at the solution of the previous call."""
        from scipy.optimize import minimize

        if not len(self.start):
            self.start = np.zeros(self._n_columns * (self.x.shape[1] + 1))
        steps = {"maxiter": STEPS}
        result = minimize(self._objective, self.start, (value,), "L-BFGS-B", jac=True, options=steps)
        self.start = result.x
        params_KG = self.start.reshape(self._n_columns, -1)
        weight_KF = (params_KG[:, :-1] / self.scale).astype(np.float32)
        return linear_model(self.problem, weight_KF, params_KG[:, -1] - weight_KF @ self.mean)

    @property
    def _n_columns(self) -> int:
        return self.problem.n_classes * (self.y.shape[1] if self.problem.task == "aspects" else 1)

    def _objective(self, flat: Array, value: float) -> tuple[float, Array]:
        """Returns the objective divided by C N, and its gradient in float64."""
        self.problem.check_stop()
        params_KG = torch.from_numpy(flat.reshape(self._n_columns, -1)).float().requires_grad_()
        weight_KF = params_KG[:, :-1]
        loss = self._loss(torch.addmm(params_KG[:, -1], self.x, weight_KF.T))
        loss = (loss + weight_KF.square().sum() / (2 * value)) / len(self.x)
        loss.backward()  # type: ignore[no-untyped-call]
        assert params_KG.grad is not None
        return float(loss.detach()), params_KG.grad.double().numpy().ravel()

    def _loss(self, logit_NK: Tensor) -> Tensor:
        if self.problem.task == "multi_label":
            return functional.binary_cross_entropy_with_logits(
                logit_NK, self.y, weight=self.known, reduction="sum"
            )
        logits = logit_NK.reshape(-1, self.problem.n_classes)
        return functional.cross_entropy(logits, self.y.reshape(-1), ignore_index=-1, reduction="sum")
