"""The baseline with a classifier for each node of a class hierarchy, fitted to the rows below its parent.

Shapes: N training rows, n of them with a known class, M rows of another split, F features, C classes, H
levels, K nodes of all levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation import Task
from mlcl.evaluation.tasks import Array, as_classes
from mlcl.training.baselines.baseline import Baseline, Fitted, Problem
from mlcl.training.baselines.linear import one_vs_rest
from mlcl.training.baselines.methods.logistic_regression import SPARSE_VALUES, logistic_machine


def nodes_of(path_CH: Array) -> Array:
    """Returns the nodes on each class's path (C, H), numbered from 0 through all levels, coarsest first.

    Classes share a node if their paths are equal from the coarsest level down to it.
    """
    columns, offset = [], 0
    for level in range(path_CH.shape[1]):
        _, node_C = np.unique(path_CH[:, : level + 1], axis=0, return_inverse=True)
        columns.append(node_C.reshape(-1) + offset)
        offset = int(columns[-1].max()) + 1
    return np.stack(columns, axis=1)


def _parent_nodes(node_CH: Array) -> Array:
    """Returns the parent of each node of a path (C, H); -1 at the coarsest level."""
    return np.concatenate([np.full((len(node_CH), 1), -1), node_CH[:, :-1]], axis=1)


def _node_columns(problem: Problem, node_CH: Array) -> Iterator[tuple[Array, Array]]:
    """Yields for each node the numbers (n,) of rows below its parent, and whether each is below it (n,)."""
    class_N = as_classes(problem.targets)
    known_n = np.flatnonzero(class_N >= 0)
    node_nH = node_CH[class_N[known_n]]
    above_nH, above_CH = _parent_nodes(node_nH), _parent_nodes(node_CH)
    for level in range(node_CH.shape[1]):
        nodes, first = np.unique(node_CH[:, level], return_index=True)
        for node, parent in zip(nodes, above_CH[first, level], strict=True):
            inside = above_nH[:, level] == parent
            yield known_n[inside], node_nH[inside, level] == node


def _fit(problem: Problem) -> Fitted:
    if problem.path is None:
        raise ValueError("this baseline needs the hierarchy above the classes")
    node_CH = nodes_of(problem.path)

    def finish(weight_KF: Array, bias_K: Array) -> Fitted:
        arrays = {"weight": weight_KF, "bias": bias_K, "node": node_CH}
        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        return Fitted(_restore(problem.task, problem.n_classes, tensors), tensors=tensors)

    columns = list(_node_columns(problem, node_CH))
    return one_vs_rest(problem, partial(logistic_machine, None), SPARSE_VALUES, columns, finish)


def _restore(_: Task, __: int, tensors: Mapping[str, Tensor]) -> Callable[[Any], Tensor]:
    """Returns the function of rows (M, F) that computes P(c) = prod_l P(node_l | parent of node_l), (M, C).

    P(node | parent) is a softmax over all nodes with this parent.
    Source: conditional softmax, Plaud et al. 2024, arXiv 2410.01305.
    """
    weight_KF, bias_K, node_CH = (tensors[name].numpy() for name in ("weight", "bias", "node"))
    pairs = np.unique(np.stack([_parent_nodes(node_CH), node_CH], -1).reshape(-1, 2), axis=0)
    siblings = [pairs[pairs[:, 0] == parent, 1] for parent in np.unique(pairs[:, 0])]

    def probabilities(rows: Any) -> Tensor:
        log_MK = torch.from_numpy(np.asarray(rows @ weight_KF.T + bias_K, dtype=np.float64))
        for nodes in siblings:
            log_MK[:, nodes] = log_MK[:, nodes].log_softmax(1)
        return torch.stack([log_MK[:, node_C] for node_C in node_CH.T]).sum(0).exp().float()

    return probabilities


TFIDF_HIERARCHY = Baseline(
    "tfidf_hierarchy",
    "TF-IDF and logistic regression for each node of a hierarchy among its siblings",
    ("tfidf",),
    _fit,
    each_class=True,
    in_sweeps=False,
    hierarchical=True,
    restore=_restore,
)
