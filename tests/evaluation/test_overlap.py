import math

import pytest
import torch

from mlcl.evaluation import Neighbours, neighbour_overlap
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
