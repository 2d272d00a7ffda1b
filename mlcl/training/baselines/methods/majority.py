"""The baseline that predicts the most frequent class, or for each label the fraction of rows that have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.evaluation import Task
from mlcl.training.baselines.baseline import Baseline, Fitted, Problem
from mlcl.training.baselines.linear import target_columns


def _fit(problem: Problem) -> Fitted:
    share_K = np.array(
        [positive_n.mean() if len(positive_n) else 0.0 for _, positive_n in target_columns(problem)]
    )
    shape = (-1, problem.n_classes) if problem.task == "aspects" else (problem.n_classes,)
    tensors = {"share": torch.from_numpy(share_K.astype(np.float32)).reshape(shape)}
    return Fitted(_restore(problem.task, problem.n_classes, tensors), tensors=tensors)


def _restore(_: Task, __: int, tensors: Mapping[str, Tensor]) -> Callable[[Any], Tensor]:
    share = tensors["share"]
    return lambda rows: share.expand(rows.shape[0], *share.shape).contiguous()


MAJORITY = Baseline(
    "majority", "the most frequent class, or each label's share of the rows", (), _fit, restore=_restore
)
