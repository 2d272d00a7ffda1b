import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.evaluation import Neighbours, retrieval, retrieve


def brute_force(datastore, queries, k):
    x, q = datastore.double().numpy(), queries.double().numpy()
    distances, indices = [], []
    for query in q:
        pairs = [(float(np.float32(np.sqrt(((row - query) ** 2).sum()))), j) for j, row in enumerate(x)]
        nearest = sorted(pairs)[:k]
        distances.append([d for d, _ in nearest])
        indices.append([j for _, j in nearest])
    return np.array(distances, dtype=np.float32), np.array(indices)


def expect_brute_force(datastore, queries, k):
    result = retrieve(datastore, queries, k)
    distance, index = brute_force(datastore, queries, k)
    assert result.distance.dtype == torch.float32
    assert result.index.dtype == torch.int64
    np.testing.assert_allclose(result.distance.numpy(), distance, rtol=2e-7)
    np.testing.assert_array_equal(result.index.numpy(), index)


@pytest.mark.parametrize("queries", [3, 30])
def test_equals_brute_force(queries):
    generator = torch.Generator().manual_seed(0)
    expect_brute_force(
        torch.randn(200, 16, generator=generator), torch.randn(queries, 16, generator=generator), 7
    )


def test_ties_go_to_the_lower_index_even_beyond_what_faiss_found():
    generator = torch.Generator().manual_seed(1)
    grid = torch.randint(0, 2, (300, 5), generator=generator).float()
    expect_brute_force(grid, torch.randint(0, 2, (40, 5), generator=generator).float(), 4)


def test_duplicates_are_at_distance_zero_far_from_the_origin():
    generator = torch.Generator().manual_seed(2)
    datastore = torch.randn(150, 32, generator=generator) * 1e-3 + 1000
    result = retrieve(datastore, datastore, 3)
    assert result.distance[:, 0].eq(0).all()
    assert result.index[:, 0].tolist() == list(range(150))
    expect_brute_force(datastore, datastore, 3)


def test_near_rows_are_not_lost_to_cancellation():
    generator = torch.Generator().manual_seed(3)
    centre = torch.randn(1, 64, generator=generator) * 10
    expect_brute_force(centre + torch.randn(200, 64, generator=generator) * 1e-4, centre.expand(21, -1), 5)


def test_batches_do_not_change_a_query():
    generator = torch.Generator().manual_seed(5)
    datastore, queries = torch.randn(300, 24, generator=generator), torch.randn(50, 24, generator=generator)
    expected = retrieve(datastore, queries, 9)
    for row in (0, 17, 49):
        result = retrieve(datastore, queries[row, None], 9)
        assert torch.equal(result.index[0], expected.index[row])
        assert torch.equal(result.distance[0], expected.distance[row])


def test_a_small_datastore_clips_k_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        result = retrieve(torch.randn(4, 3), torch.randn(2, 3), 10)
    assert result.index.shape == (2, 4)
    assert "only 4 neighbours instead of 10" in caplog.text


def same(one, other):
    return torch.equal(one.distance, other.distance) and torch.equal(one.index, other.index)


def in_blocks(size, *inputs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "BLOCK", size)
        return retrieve(*inputs)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(2, 120),
    k=st.integers(1, 40),
    block=st.integers(1, 130),
    ties=st.booleans(),
)
def test_blocks_of_any_size_equal_one_search_bit_for_bit(seed, rows, k, block, ties):
    generator = torch.Generator().manual_seed(seed)
    x, q = torch.randn(rows, 5, generator=generator), torch.randn(7, 5, generator=generator)
    if ties:
        x, q = x.round().clamp(-1, 1), q.round().clamp(-1, 1)
    assert same(in_blocks(block, x, q, k), retrieve(x, q, k))


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_blocks_where_float32_products_cancel(far):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 32, generator=generator) * 1e-3 + far
    assert same(in_blocks(47, x, x[:40], 12), retrieve(x, x[:40], 12))


def test_a_collapsed_datastore_gives_the_first_rows():
    x = torch.full((90, 4), 0.3)
    result = in_blocks(20, x, x[:3], 25)
    assert result.index.tolist() == [list(range(25))] * 3
    assert not result.distance.any()


def test_fewer_rows_than_k_in_a_block_are_no_news_and_no_queries_have_no_neighbours(caplog):
    result = in_blocks(2, torch.randn(9, 3), torch.randn(2, 3), 5)
    assert result.index.shape == (2, 5)
    assert not caplog.text
    empty_result = in_blocks(4, torch.randn(9, 3), torch.empty(0, 3), 2)
    assert empty_result.index.shape == empty_result.distance.shape == (0, 2)


def slow_merge(found, k):
    """Returns the k smallest pairs of distance and row number of each query, in order."""
    rows = []
    for query in range(len(found[0].index)):
        pairs = [
            pair
            for neighbours in found
            for pair in zip(
                neighbours.distance[query].tolist(), neighbours.index[query].tolist(), strict=True
            )
        ]
        rows.append(sorted(pairs)[:k])
    return rows


def pairs_of(neighbours):
    rows = zip(neighbours.distance.tolist(), neighbours.index.tolist(), strict=True)
    return [list(zip(distance, index, strict=True)) for distance, index in rows]


@settings(deadline=None)
@given(st.data())
def test_merge_equals_the_slow_loop(data):
    queries, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    widths = [*data.draw(st.lists(st.integers(0, 5), max_size=4)), data.draw(st.integers(1, 5))]
    numbers = iter(data.draw(st.permutations(range(queries * sum(widths)))))
    blocks = [
        Neighbours(
            torch.tensor(
                [[data.draw(st.sampled_from([0.0, 0.5, 2.0])) for _ in range(w)] for _ in range(queries)]
            ),
            torch.tensor([[next(numbers) for _ in range(w)] for _ in range(queries)], dtype=torch.int64),
        )
        for w in widths
    ]
    result = retrieval.merge(blocks, k)
    assert result.distance.dtype == torch.float32
    assert result.index.dtype == torch.int64
    assert pairs_of(result) == slow_merge(blocks, k)


NONE = Neighbours(torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
ONE, TWO = (Neighbours(torch.zeros(n, 1), torch.zeros(n, 1, dtype=torch.int64)) for n in (1, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: retrieve(torch.tensor([[float("nan")]]), torch.zeros(1, 1), 1), "not finite"),
     (lambda: retrieve(torch.zeros(0, 2), torch.zeros(1, 2), 1), "no neighbours"),
     (lambda: retrieve(torch.zeros(1, 2), torch.zeros(1, 2), 0), "k_max 0"),
     (lambda: retrieve(torch.zeros(1, 2), torch.zeros(1, 3), 1), r"do not fit; found: \(1, 2\) and \(1, 3\)"),
     (lambda: retrieve(torch.zeros(2), torch.zeros(1, 2), 1), r"do not fit; found: \(2,\) and \(1, 2\)"),
     (lambda: retrieval.merge([], 1), "at least one"),
     (lambda: retrieval.merge([NONE], 1), "0 neighbours"), (lambda: retrieval.merge([ONE], 0), "k_max 0"),
     (lambda: retrieval.merge([ONE, TWO], 1), "concatenat")],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("rows", [5, 40])
def test_embeddings_whose_squares_overflow_have_their_nearest_rows(rows):
    result = retrieve(torch.arange(float(rows))[:, None] * 1e20, torch.tensor([[3.2e20]]), 2)
    assert result.index.tolist() == [[3, 4]]


def test_embeddings_that_are_no_tensors_are_named():
    with pytest.raises(TypeError, match=r"not a tensor; found: list; allowed: torch.as_tensor"):
        retrieve([[0.0]], torch.zeros(1, 1), 1)
    with pytest.raises(TypeError, match="not a tensor; found: ndarray"):
        retrieve(torch.zeros(1, 1), torch.zeros(1, 1).numpy(), 1)
