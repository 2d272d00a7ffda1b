import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.evaluation import Neighbours
from mlcl.evaluation.retrieval import merge


def slow_merge(found, k):
    """Sorted pairs of distance and row number, query by query."""
    rows = []
    for query in range(len(found[0].index)):
        pairs = [
            pair
            for each in found
            for pair in zip(each.distance[query].tolist(), each.index[query].tolist(), strict=True)
        ]
        rows.append(sorted(pairs)[:k])
    return rows


def pairs_of(neighbours):
    both = zip(neighbours.distance.tolist(), neighbours.index.tolist(), strict=True)
    return [list(zip(distance, index, strict=True)) for distance, index in both]


@settings(deadline=None)
@given(st.data())
def test_merge_equals_the_slow_loop(data):
    queries, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    widths = [*data.draw(st.lists(st.integers(0, 5), max_size=4)), data.draw(st.integers(1, 5))]
    numbers = iter(data.draw(st.permutations(range(queries * sum(widths)))))
    found = [
        Neighbours(
            torch.tensor(
                [[data.draw(st.sampled_from([0.0, 0.5, 2.0])) for _ in range(w)] for _ in range(queries)]
            ),
            torch.tensor([[next(numbers) for _ in range(w)] for _ in range(queries)], dtype=torch.int64),
        )
        for w in widths
    ]
    got = merge(found, k)
    assert got.distance.dtype == torch.float32
    assert got.index.dtype == torch.int64
    assert pairs_of(got) == slow_merge(found, k)


def test_bad_input():
    with pytest.raises(ValueError, match="at least one"):
        merge([], 1)
    with pytest.raises(ValueError, match="0 neighbours"):
        merge([Neighbours(torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))], 1)
    one = Neighbours(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="k_max 0"):
        merge([one], 0)
    two = Neighbours(torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="concatenat"):
        merge([one, two], 1)
