"""Evaluates classes that the encoder was not trained on, by the nearest neighbour and by a few-shot probe.

Shapes: N rows to learn from, S rows of a draw, M queries, D embedding, C classes or labels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.knn import knn_probabilities
from mlcl.evaluation.retrieval import retrieve
from mlcl.evaluation.scores import evaluate
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_label_sets
from mlcl.labels import LabelRows

FEW_SHOT_METRICS: dict[Task, tuple[str, ...]] = {
    "single": ("accuracy", "macro_f1"),
    "multi_label": ("macro_f1", "map", "micro_f1"),
}
"""The metrics of each task. Labels with a probability of at least one half are predicted, and in any case the
most probable label of every row."""


@dataclass(frozen=True)
class FewShot:
    """The rows from which the classes are learnt, by the nearest neighbour or by a few-shot probe.

    Raises ValueError if the numbers of embeddings and targets differ.

    Attributes:
        embeddings: Embeddings (N, D), float32.
        targets: Classes, or label rows; every row has a class or label, and every class or label has a row.
        task: The kind of task, `single` or `multi_label`.
        n_classes: The number of classes or labels C.
    """

    embeddings: Tensor
    targets: Targets
    task: Task
    n_classes: int

    def __post_init__(self) -> None:
        if len(self.embeddings) != len(self.targets):
            raise ValueError(f"{len(self.embeddings)} embeddings for {len(self.targets)} targets")

    def nearest(self, queries_MD: Tensor, targets: Targets) -> dict[str, float]:
        """Returns the metrics if each query is predicted to have the labels of the nearest of all N rows.

        `targets` are the true labels of the queries.
        """
        neighbours = retrieve(self.embeddings, queries_MD, 1)
        votes = knn_probabilities(neighbours, self.targets, self.task, 1, 1.0, self.n_classes)
        return self._score_predictions(votes, targets)

    def probe(
        self, queries_MD: Tensor, targets: Targets, *, shots: int, draws: int, seed: int
    ) -> dict[str, float]:
        """Returns the mean metrics of logistic regressions on `shots` rows of each class, over `draws` draws.

        Rows are drawn at random by `seed`; all rows of a class with fewer than `shots` are used. Embeddings
        are scaled to length 1, and the inverse penalty C is 1. In a multi-label space each label has a
        regression of its own, in which rows with and without the label have equal total weight; a row that is
        drawn for two labels is used once, and an unknown entry counts as absent. Source: Tian et al. 2020,
        Rethinking few-shot image classification.

        Raises ValueError for fewer than one shot or draw, and for a single class or label: all drawn rows
        have it.
        """
        if shots < 1 or draws < 1:
            raise ValueError(f"shots and draws must be 1 or more; found: {shots} and {draws}")
        if self.n_classes < 2:
            raise ValueError("a few-shot probe needs two classes or labels")
        sets, values = as_label_sets(self.targets, self.n_classes), []
        row_E, class_E = array(sets.row_index()), array(sets.columns)
        for draw in range(draws):
            rng = np.random.default_rng([seed, draw])
            samples = [rng.permutation(row_E[class_E == c])[:shots] for c in range(self.n_classes)]
            row_S = np.unique(np.concatenate(samples))
            values.append(self._score_predictions(self._fit_and_predict(row_S, queries_MD), targets))
        return {name: float(np.mean([metrics[name] for metrics in values])) for name in values[0]}

    def _score_predictions(self, probabilities: Tensor, targets: Targets) -> dict[str, float]:
        decision = Decision.fixed(0.5, at_least_one=True)
        return evaluate(self.task, probabilities, targets, decision, only=FEW_SHOT_METRICS[self.task])

    def _fit_and_predict(self, row_S: Array, queries_MD: Tensor) -> Tensor:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.preprocessing import normalize

        x_SD, q_MD = (normalize(array(x).astype(np.float64)) for x in (self.embeddings[row_S], queries_MD))
        if isinstance(self.targets, LabelRows):
            y = self.targets.take(torch.from_numpy(row_S)).dense(torch.int64).numpy()
            model = OneVsRestClassifier(LogisticRegression(max_iter=1000, class_weight="balanced"))
        else:
            y = array(self.targets)[row_S]
            model = LogisticRegression(max_iter=1000)
        with warnings.catch_warnings():
            # A label that all drawn rows have is always predicted, as it should be.
            warnings.filterwarnings("ignore", message="Label .* is present in all training examples")
            return torch.from_numpy(model.fit(x_SD, y).predict_proba(q_MD))
