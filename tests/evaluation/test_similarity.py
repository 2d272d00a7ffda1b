import pytest
import torch

from mlcl.evaluation.similarity import label_similarity
from mlcl.labels import LabelRows


def test_shared_labels_equal_a_loop():
    y_NL = torch.rand(50, 7, generator=torch.Generator().manual_seed(0)) < 0.3
    y_NL[4] = False
    rows = LabelRows.from_dense(y_NL)
    for query in range(50):
        expected = [len(set(rows.lists()[query]) & set(other)) for other in rows.lists()]
        assert label_similarity(rows.take(torch.tensor([query])), rows).tolist() == expected


def test_one_query_at_a_time():
    rows = LabelRows.from_lists([[0], [1]], 2)
    with pytest.raises(ValueError, match="not 2"):
        label_similarity(rows, rows)
