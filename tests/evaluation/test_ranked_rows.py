import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from mlcl.evaluation import evaluate, metric_names
from mlcl.labels import LabelRows

NAMES = ("coverage_error", "ndcg", "r_precision", "ranking_loss")


def test_they_are_the_group_ranking():
    assert set(metric_names("multi_label", groups=["ranking"])) - set(metric_names("multi_label")) == {*NAMES}
    assert not set(metric_names("multi_label", n_labels=1, groups=["ranking"])) & set(NAMES)


@pytest.mark.parametrize("ties", [False, True])
def test_they_equal_scikit_learn_on_rows_with_a_label(ties):
    rng = np.random.default_rng(1)
    p = rng.random((60, 15)).astype(np.float32)
    p = np.round(p, 1) if ties else p
    y = rng.random((60, 15)) < 0.15
    y[:4], y[4] = False, True
    rows = LabelRows.from_dense(torch.from_numpy(y))
    found = evaluate("multi_label", torch.from_numpy(p), rows, only=NAMES)
    p, y = p[y.any(1)], y[y.any(1)]
    first = [np.argsort(-score, kind="stable")[: row.sum()] for row, score in zip(y, p, strict=True)]
    precision = [row[labels].mean() for row, labels in zip(y, first, strict=True)]
    assert found == pytest.approx(
        {
            "coverage_error": sk.coverage_error(y, p),
            "ndcg": sk.ndcg_score(y, p),
            "r_precision": np.mean(precision),
            "ranking_loss": sk.label_ranking_loss(y, p),
        },
        abs=1e-12,
    )


def test_without_a_label_there_is_nothing_to_rank():
    found = evaluate("multi_label", torch.rand(3, 4), LabelRows.from_lists([[]] * 3, 4), only=NAMES)
    assert all(math.isnan(value) for value in found.values())
    assert len(found) == 4
