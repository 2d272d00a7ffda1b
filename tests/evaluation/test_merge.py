import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.evaluation import Neighbours, retrieve
from mlcl.evaluation.merge import merge, retrieve_in_blocks


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


def cut(rows, cuts):
    return torch.tensor_split(rows, sorted(cuts))


def same(one, other):
    return torch.equal(one.distance, other.distance) and torch.equal(one.index, other.index)


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


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 120),
    k=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 120), max_size=6),
    ties=st.booleans(),
)
def test_blocks_of_any_size_equal_one_search_bit_for_bit(seed, rows, k, cuts, ties):
    generator = torch.Generator().manual_seed(seed)
    x, q = torch.randn(rows, 5, generator=generator), torch.randn(7, 5, generator=generator)
    if ties:
        x, q = x.round().clamp(-1, 1), q.round().clamp(-1, 1)
    assert same(retrieve_in_blocks(cut(x, cuts), q, k), retrieve(x, q, k))


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_where_float32_products_cancel(far):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 32, generator=generator) * 1e-3 + far
    assert same(retrieve_in_blocks(cut(x, [3, 50, 390]), x[:40], 12), retrieve(x, x[:40], 12))


def test_a_collapsed_datastore_gives_the_first_rows():
    x = torch.full((90, 4), 0.3)
    got = retrieve_in_blocks(x.split(20), x[:3], 25)
    assert got.index.tolist() == [list(range(25))] * 3
    assert not got.distance.any()


def test_rows_are_numbered_from_the_first():
    x = torch.arange(6.0)[:, None]
    got = retrieve_in_blocks(x.split(4), torch.tensor([[5.0]]), 2, first=2**40)
    assert got.index.tolist() == [[2**40 + 5, 2**40 + 4]]


def test_no_queries():
    got = retrieve_in_blocks(torch.randn(9, 3).split(4), torch.empty(0, 3), 2)
    assert got.index.shape == got.distance.shape == (0, 2)


def test_fewer_rows_than_k_in_a_block_are_no_news(caplog):
    got = retrieve_in_blocks(torch.randn(9, 3).split(2), torch.randn(2, 3), 5)
    assert got.index.shape == (2, 5)
    assert not caplog.text


def test_bad_input():
    with pytest.raises(ValueError, match="0 rows"):
        retrieve_in_blocks([torch.empty(0, 3)], torch.zeros(1, 3), 1)
    with pytest.raises(ValueError, match="k_max 0"):
        retrieve_in_blocks([torch.zeros(1, 3)], torch.zeros(1, 3), 0)
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
