"""Logistic regression on dense rows, all classes or labels at once.

For a C it minimises, over weights W (K, F) and biases, with standardised features x,

    C sum_n loss(W x_n + b, y_n) + |W|^2 / 2

where the loss is the binary cross-entropy summed over labels, or the cross-entropy of a row's class, of each
aspect. Missing classes and unknown labels have no part in the sum.

Shapes: N rows, F features, A aspects (1 for other tasks), C classes or labels, K = A C columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mlcl.baselines.baseline import Fitted, Problem
from mlcl.baselines.linear import linear
from mlcl.evaluation.tasks import Array, as_classes, as_rows

STEPS = 100
"""Most steps of L-BFGS for one C; each begins at the solution of the one before."""


@dataclass
class DenseLogistic:
    """The problem with standardised rows `x` (N, F) and `y`: labels (N, L) float32, or classes (N, A).

    `known` (N, L) float32 is 0 where a row does not tell of a label; None where all rows tell of all.
    """

    problem: Problem
    mean: Array
    scale: Array
    x: Tensor
    y: Tensor
    known: Tensor | None = None
    start: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, problem: Problem) -> DenseLogistic:
        """Mean and scale are those of the training rows."""
        rows = np.asarray(problem.rows, dtype=np.float32)
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
        """The model with C = `value`."""
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
        """The mean over rows of the loss and of the regulariser, and its gradient, float64."""
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
