"""Linear models for baselines: one-vs-rest models of classes or labels, and dense logistic regression.

Shapes: N training rows, n of them with a known class, M rows of another split, F features, A aspects (1 for
other tasks), C classes or labels, K = A C columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.evaluation import Task
from mlcl.evaluation.tasks import Array, as_classes, as_rows, known_entries
from mlcl.training.baselines.baseline import Fitted, Problem, best_of

NEVER = 20.0
"""The score of a class that all training rows have; a class that no row has gets its negative."""
STEPS = 100
"""The largest number of L-BFGS steps for one C; each fit begins at the solution of the one before."""


def target_columns(problem: Problem) -> Iterator[tuple[Array, Array]]:
    """Yields, for each column, the training rows whose target is known and whether they have the class.

    Both are arrays (n,), of int64 and of bool.
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
    """Returns float32 probabilities: sigmoids of the labels' scores, or the softmax over classes' scores."""
    score = torch.from_numpy(np.asarray(score_MK, dtype=np.float32))
    if task == "multi_label":
        return score.sigmoid()
    return (score.reshape(len(score), -1, n_classes) if task == "aspects" else score).softmax(-1)


def one_vs_rest(problem: Problem, make: Callable[[float], Any], values: Sequence[float]) -> Fitted:
    """Fits one linear model per column, all with the same C, which is chosen on validation.

    `values` are the values of C to try, ascending. `make` returns an unfitted linear classifier of
    scikit-learn for a C.
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
                warnings.simplefilter("ignore")  # validation also judges a model that has not converged
                model = make(value).fit(inside, has)
            weight_KF[number], bias_K[number] = model.coef_[0], model.intercept_[0]
        return linear(problem, weight_KF, bias_K)

    return best_of(problem, values, "C", fit)


def linear(problem: Problem, weight_KF: Array, bias_K: Array) -> Fitted:
    """Returns the linear model with weights (K, F) and biases (K,) as a fitted baseline."""
    tensors = {"weight": torch.from_numpy(weight_KF), "bias": torch.from_numpy(bias_K)}
    return Fitted(restore_linear(problem.task, problem.n_classes, tensors), tensors=tensors)


def restore_linear(task: Task, n_classes: int, tensors: Mapping[str, Tensor]) -> Callable[[Any], Tensor]:
    """Returns the probabilities of a linear model with the tensors `weight` (K, F) and `bias` (K,)."""
    weight_KF, bias_K = tensors["weight"].numpy(), tensors["bias"].numpy()
    return lambda rows: probabilities(task, n_classes, rows @ weight_KF.T + bias_K)


def _doubles(rows: Any) -> Any:
    """Converts rows to float64, which liblinear would do at each fit."""
    from scipy.sparse import csr_matrix, issparse

    return csr_matrix(rows, dtype=np.float64) if issparse(rows) else np.asarray(rows, dtype=np.float64)


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
        """Takes the training rows of a problem, standardised or as they are."""
        rows = np.asarray(problem.rows, dtype=np.float32)
        mean_F, scale_F = np.zeros(rows.shape[1], np.float32), np.ones(rows.shape[1], np.float32)
        if standardise:
            mean_F, scale_F = rows.mean(0), rows.std(0)
            scale_F[scale_F == 0] = 1
        x = torch.from_numpy((rows - mean_F) / scale_F)
        if problem.task == "multi_label":
            targets = as_rows(problem.targets)
            known = targets.known()
            return cls(problem, mean_F, scale_F, x, targets.dense(), None if known is None else known.float())
        y = torch.from_numpy(as_classes(problem.targets)).reshape(len(rows), -1)
        return cls(problem, mean_F, scale_F, x, y)

    def fit(self, value: float) -> Fitted:
        """Fits the model with C = `value`."""
        from scipy.optimize import minimize

        columns = self._columns
        if not len(self.start):
            self.start = np.zeros(columns * (self.x.shape[1] + 1))
        found = minimize(
            self._objective,
            self.start,
            args=(value,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": STEPS},
        )
        self.start = found.x
        weight_KF, bias_K = self._parts(found.x)
        weight_KF = (weight_KF / self.scale).astype(np.float32)
        return linear(self.problem, weight_KF, bias_K - weight_KF @ self.mean)

    @property
    def _columns(self) -> int:
        return self.problem.n_classes * (self.y.shape[1] if self.problem.task == "aspects" else 1)

    def _parts(self, flat: Array) -> tuple[Array, Array]:
        whole = flat.reshape(self._columns, -1)
        return whole[:, :-1], whole[:, -1]

    def _objective(self, flat: Array, value: float) -> tuple[float, Array]:
        """Returns the objective divided by C N, and its gradient in float64."""
        self.problem.check_stop()
        whole_KG = torch.from_numpy(flat.reshape(self._columns, -1)).float().requires_grad_()
        weight_KF = whole_KG[:, :-1]
        loss = self._loss(torch.addmm(whole_KG[:, -1], self.x, weight_KF.T))
        loss = (loss + weight_KF.square().sum() / (2 * value)) / len(self.x)
        loss.backward()  # type: ignore[no-untyped-call]
        assert whole_KG.grad is not None
        return float(loss.detach()), whole_KG.grad.double().numpy().ravel()

    def _loss(self, logit_NK: Tensor) -> Tensor:
        if self.problem.task == "multi_label":
            return functional.binary_cross_entropy_with_logits(
                logit_NK, self.y, weight=self.known, reduction="sum"
            )
        logits = logit_NK.reshape(-1, self.problem.n_classes)
        return functional.cross_entropy(logits, self.y.reshape(-1), ignore_index=-1, reduction="sum")
