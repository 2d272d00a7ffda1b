import math

import pytest
import torch

from mlcl.evaluation import Neighbours, neighbour_overlap
from mlcl.labels import LabelRows

NEIGHBOURS = Neighbours(torch.zeros(2, 3), torch.tensor([[0, 1, 2], [3, 3, 4]]))
TRAIN = LabelRows.from_lists([[0, 1], [0], [2, 3], [4], []], 5)
QUERIES = LabelRows.from_lists([[0, 2], [4]], 5)


@pytest.mark.parametrize(
    ("variant", "first", "second"),
    [("pooled", 3 / 5, 1), ("per_neighbour", (1 / 2 + 1 + 1 / 2) / 3, 1), ("distinct", 2 / 4, 1)],
)
def test_variants(variant, first, second):
    got = neighbour_overlap(NEIGHBOURS, TRAIN, QUERIES, 3, variant)
    assert got == pytest.approx((first + second) / 2)


def test_fewer_neighbours():
    assert neighbour_overlap(NEIGHBOURS, TRAIN, QUERIES, 1) == pytest.approx((1 / 2 + 1) / 2)


def test_queries_that_are_brought_nothing_are_left_out():
    neighbours = Neighbours(torch.zeros(2, 1), torch.tensor([[1], [4]]))
    for variant in ("pooled", "per_neighbour", "distinct"):
        assert neighbour_overlap(neighbours, TRAIN, QUERIES, 1, variant) == 1
    nothing = Neighbours(torch.zeros(2, 1), torch.tensor([[4], [4]]))
    assert math.isnan(neighbour_overlap(nothing, TRAIN, QUERIES, 1))
