"""Metrics in a hierarchy: how far off a prediction is, whether the levels agree, and the best whole path.

The probability of a coarser class is the sum over the classes below it. A class whose parent is unknown gets
a parent of its own. For single classes the predicted class and its ancestors are compared with the row's own
classes at all levels; a level at which the row has no class is left out for that row.

Shapes: N rows, C classes or L labels, H levels (the last is predicted), V nodes: the classes of all levels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from mlcl.evaluation.metric import Metric
from mlcl.evaluation.predictions import ClassPrediction, LabelPrediction
from mlcl.evaluation.tasks import Array


def shared_nodes(prediction: LabelPrediction | ClassPrediction) -> tuple[float, float, float]:
    """Returns sum_i |T_i & P_i|, sum_i |P_i| and sum_i |T_i|.

    T_i are the true labels of row i with all their ancestors, P_i the predicted labels with all their
    ancestors. For single classes T_i are the row's own classes at all levels, and levels at which the row has
    no class are left out of both.
    """
    path = prediction.facts.paths()
    if isinstance(prediction, ClassPrediction):
        true_NH = prediction.true_path
        nodes = float((true_NH >= 0).sum())
        return float((path[prediction.predicted] == true_NH).sum()), nodes, nodes
    above_LV = _nodes_above(path)
    true_NL = np.zeros(prediction.predicted.shape, dtype=bool)
    true_NL[prediction.row, prediction.label] = True
    predicted_NV, true_NV = (
        (scipy.sparse.csr_array(label_NL.astype(np.int64)) @ above_LV).astype(bool)
        for label_NL in (prediction.predicted, true_NL)
    )
    return float(predicted_NV.multiply(true_NV).sum()), float(predicted_NV.sum()), float(true_NV.sum())


def node_metric(kind: str, summary: str, value: Callable[[float, float, float], float]) -> Metric:
    """Returns the metric `hierarchical_<kind>`: `value` of the three sums of `shared_nodes`; 0 for 0 / 0.

    Precision is sum_i |T_i & P_i| / sum_i |P_i|, recall sum_i |T_i & P_i| / sum_i |T_i|, and F1 their
    harmonic mean, 2 sum_i |T_i & P_i| / (sum_i |P_i| + sum_i |T_i|).
    """

    def hierarchical_value(prediction: LabelPrediction | ClassPrediction) -> float:
        try:
            return value(*shared_nodes(prediction))
        except ZeroDivisionError:
            return 0.0

    return Metric(
        name=f"hierarchical_{kind}",
        summary=summary,
        source="Kiritchenko et al. 2006, Learning and evaluation in the presence of class hierarchies",
        group="hierarchy",
        labels=hierarchical_value,
        classes=hierarchical_value,
    )


def lca_distance(prediction: ClassPrediction) -> float:
    """Returns the mean number of levels from the predicted class up to its common ancestor with the target.

    It is 0 for the right class, 1 for a class with the same parent, and H if even the coarsest classes
    differ. It counts the levels at which the predicted class or its ancestor differs from the row's own
    class; a level at which the row has no class counts 0.
    """
    path, true_NH = prediction.facts.paths(), prediction.true_path
    differs_NH = (path[prediction.predicted] != true_NH) & (true_NH >= 0)
    return float(differs_NH.sum(axis=1).mean())


def level_consistency(prediction: ClassPrediction) -> float:
    """Returns the share of rows whose most probable classes at all levels form one path.

    Of equally probable classes the lower one is taken.
    """
    path = prediction.facts.paths()
    best_NH = np.stack([level.argmax(axis=1) for level in _level_probabilities(prediction)], axis=1)
    return float((path[prediction.predicted] == best_NH).all(axis=1).mean())


def path_accuracy(prediction: ClassPrediction) -> float:
    """Returns the accuracy of c = argmax_c sum_l log p_l(class of c at level l); of equal ones the lower."""
    path = prediction.facts.paths()
    with np.errstate(divide="ignore"):
        levels = [np.log(level) for level in _level_probabilities(prediction)]
    score_NC = sum(level[:, path[:, index]] for index, level in enumerate(levels))
    return float((np.asarray(score_NC).argmax(axis=1) == prediction.targets).mean())


def _level_probabilities(prediction: ClassPrediction) -> list[Array]:
    """Returns for each level, the coarsest first, the probabilities (N, V) float64 of its classes."""
    path = prediction.facts.paths()
    sum_NV = (_nodes_above(path).T @ prediction.probabilities.astype(np.float64).T).T
    return np.split(sum_NV, _first_nodes(path)[1:], axis=1)


def _nodes_above(path: Array) -> scipy.sparse.csr_array:
    """Returns a matrix (L, V) int64 that is 1 where a node is the label itself or an ancestor of it."""
    node_LH = path + _first_nodes(path)
    label_LH = np.repeat(np.arange(len(path)), path.shape[1])
    entries = np.ones(path.size, dtype=np.int64), (label_LH, node_LH.ravel())
    return scipy.sparse.csr_array(entries, shape=(len(path), int(node_LH.max()) + 1))


def _first_nodes(path: Array) -> Array:
    """Returns the number of each level's first node (H,); nodes are numbered level by level."""
    return np.concatenate([[0], np.cumsum(path.max(axis=0) + 1)[:-1]])


HIERARCHICAL_PRECISION = node_metric(
    "precision",
    "share of the predicted classes, with all above them, that is right",
    lambda right, predicted, _: right / predicted,
)
HIERARCHICAL_RECALL = node_metric(
    "recall",
    "share of the true classes, with all above them, that is predicted",
    lambda right, _, true: right / true,
)
HIERARCHICAL_F1 = node_metric(
    "f1",
    "F1 of hierarchical precision and recall",
    lambda right, predicted, true: 2 * right / (predicted + true),
)
LCA_DISTANCE = Metric(
    name="lca_distance",
    summary="levels up to the lowest class above both the predicted and the true one, mean over rows",
    source="Bertinetto et al. 2020, Making better mistakes",
    mode="min",
    group="hierarchy",
    classes=lca_distance,
)
LEVEL_CONSISTENCY = Metric(
    name="level_consistency",
    summary="share of rows whose most probable classes of all levels are one path",
    source="levels by summed probabilities",
    group="hierarchy",
    classes=level_consistency,
)
PATH_ACCURACY = Metric(
    name="path_accuracy",
    summary="accuracy of the class whose path has the highest summed log-probabilities of all levels",
    source="levels by summed probabilities",
    group="hierarchy",
    classes=path_accuracy,
)
