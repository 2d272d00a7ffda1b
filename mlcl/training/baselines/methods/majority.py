"""The baseline that predicts the most frequent class, or for each label the fraction of rows that have it."""

from __future__ import annotations

import numpy as np
import torch

from mlcl.training.baselines.baseline import Baseline, Fitted, Problem
from mlcl.training.baselines.linear import target_columns


def _fit(problem: Problem) -> Fitted:
    share_K = np.array([has.mean() if len(has) else 0.0 for _, has in target_columns(problem)])
    shape = (-1, problem.n_classes) if problem.task == "aspects" else (problem.n_classes,)
    share = torch.from_numpy(share_K.astype(np.float32)).reshape(shape)
    return Fitted(lambda rows: share.expand(rows.shape[0], *share.shape).contiguous())


MAJORITY = Baseline("majority", "the most frequent class, or each label's share of the rows", "nothing", _fit)
