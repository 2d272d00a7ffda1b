import math

import pytest
import torch

from mlcl.evaluation import Neighbours, neighbour_overlap
from mlcl.evaluation.knn import label_similarity
from mlcl.labels import LabelRows

NEIGHBOURS = Neighbours(torch.zeros(2, 3), torch.tensor([[0, 1, 2], [3, 3, 4]]))
TRAIN = LabelRows.from_lists([[0, 1], [0], [2, 3], [4], []], 5)
QUERIES = LabelRows.from_lists([[0, 2], [4]], 5)


def test_labels_of_all_neighbours_are_pooled():
    assert neighbour_overlap(NEIGHBOURS, TRAIN, QUERIES, 3) == pytest.approx((3 / 5 + 1) / 2)


def test_fewer_neighbours():
    assert neighbour_overlap(NEIGHBOURS, TRAIN, QUERIES, 1) == pytest.approx((1 / 2 + 1) / 2)


def test_queries_that_are_brought_nothing_are_left_out():
    neighbours = Neighbours(torch.zeros(2, 1), torch.tensor([[1], [4]]))
    assert neighbour_overlap(neighbours, TRAIN, QUERIES, 1) == 1
    nothing = Neighbours(torch.zeros(2, 1), torch.tensor([[4], [4]]))
    assert math.isnan(neighbour_overlap(nothing, TRAIN, QUERIES, 1))


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
