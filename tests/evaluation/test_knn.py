import math

import pytest
import torch

from mlcl.evaluation import Neighbours, blend, knn_probabilities, neighbour_overlap, retrieve
from mlcl.evaluation.knn import label_similarity
from mlcl.labels import LabelRows


def slow_votes(distances, votes, temperature, width):
    """Computes kNN-MLTC Eq. 1 in plain Python; `votes` has the labels of each neighbour, None if missing."""
    pairs = [(d, v) for d, v in zip(distances, votes, strict=True) if v is not None]
    if not pairs:
        return [1 / width] * width
    nearest = min(d for d, _ in pairs)
    weights = [math.exp(-(d - nearest) / temperature) for d, _ in pairs]
    probabilities = [0.0] * width
    for weight, (_, labels) in zip(weights, pairs, strict=True):
        for label in labels:
            probabilities[label] += weight / sum(weights)
    return probabilities


def scene(seed, rows=30, queries=9, k=6):
    generator = torch.Generator().manual_seed(seed)
    x, q = torch.randn(rows, 4, generator=generator), torch.randn(queries, 4, generator=generator)
    return retrieve(x, q, k), generator


def expect_votes(neighbours, labels, task, k, temperature, width, votes):
    actual = knn_probabilities(neighbours, labels, task, k, temperature, width)
    assert actual.dtype == torch.float32
    for query in range(len(neighbours.index)):
        index = neighbours.index[query, :k].tolist()
        distance = neighbours.distance[query, :k].tolist()
        for row, votes_of in zip(actual[query].reshape(-1, width), votes, strict=True):
            expected = slow_votes(distance, [votes_of(j) for j in index], temperature, width)
            torch.testing.assert_close(row, torch.tensor(expected))


@pytest.mark.parametrize("temperature", [1e-4, 0.3, 1.0, 1e3])
@pytest.mark.parametrize("k", [1, 4, 6])
def test_votes_equal_the_plain_sum(k, temperature):
    neighbours, generator = scene(0)
    rows = [row.nonzero().flatten().tolist() for row in torch.rand(30, 5, generator=generator) < 0.3]
    expect_votes(
        neighbours, LabelRows.from_lists(rows, 5), "multi_label", k, temperature, 5, [lambda j: rows[j]]
    )
    classes = torch.randint(-1, 3, (30,), generator=generator)
    class_votes = lambda j: None if classes[j] < 0 else [int(classes[j])]  # noqa: E731
    expect_votes(neighbours, classes, "single", k, temperature, 3, [class_votes])
    ratings = torch.randint(-1, 3, (30, 2), generator=generator)
    aspect_votes = [
        lambda j, a=a: None if ratings[j, a] < 0 else [int(ratings[j, a])] for a in range(ratings.shape[1])
    ]
    expect_votes(neighbours, ratings, "aspects", k, temperature, 3, aspect_votes)


def test_weights_do_not_under_or_overflow():
    neighbours = Neighbours(torch.tensor([[5000.0, 5002.0]]), torch.tensor([[0, 1]]))
    labels = LabelRows.from_lists([[0], [1]], 2)
    actual = knn_probabilities(neighbours, labels, "multi_label", 2, 0.01, 2)
    assert actual.tolist() == [[1.0, 0.0]]
    missing_first = knn_probabilities(neighbours, torch.tensor([-1, 1]), "single", 2, 1e-6, 2)
    assert missing_first.tolist() == [[0.0, 1.0]]


def test_all_missing_is_uniform():
    neighbours = Neighbours(torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 1]]))
    actual = knn_probabilities(neighbours, torch.tensor([[-1, 0], [-1, -1]]), "aspects", 2, 1.0, 4)
    assert actual.tolist() == [[[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]]


def test_blend():
    knn, model = torch.tensor([0.0, 1.0, 0.3]), torch.tensor([1.0, 0.5, 0.3])
    assert torch.equal(blend(knn, model, 0.0), model.double())
    assert torch.equal(blend(knn, model, 1.0), knn.double())
    torch.testing.assert_close(blend(knn, model, 0.25), (0.25 * knn + 0.75 * model).double())


def test_bad_input():
    neighbours = Neighbours(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="temperature"):
        knn_probabilities(neighbours, torch.tensor([0]), "single", 1, 0.0, 2)
    with pytest.raises(ValueError, match="k must"):
        knn_probabilities(neighbours, torch.tensor([0]), "single", 0, 1.0, 2)
    with pytest.raises(ValueError, match="class 2 among the labels of 2 classes"):
        knn_probabilities(neighbours, torch.tensor([2]), "single", 1, 1.0, 2)
    with pytest.raises(ValueError, match="unknown task 'sngle'"):
        knn_probabilities(neighbours, torch.tensor([0]), "sngle", 1, 1.0, 2)
    for task, labels in (("single", torch.zeros(1, 2)), ("aspects", torch.zeros(1))):
        with pytest.raises(ValueError, match=rf"labels \(1,.*\) do not fit the task {task}"):
            knn_probabilities(neighbours, labels.long(), task, 1, 1.0, 2)
    for task, no_labels in (("single", torch.tensor([0])[:0]), ("multi_label", LabelRows.from_lists([], 2))):
        with pytest.raises(ValueError, match="0 labels for a datastore of 1 rows or more"):
            knn_probabilities(neighbours, no_labels, task, 1, 1.0, 2)


TRAIN = LabelRows.from_lists([[0, 1], [0], [2, 3], [4], []], 5)
QUERIES = LabelRows.from_lists([[0, 2], [4]], 5)


@pytest.mark.parametrize(
    ("index", "k", "share"),
    [([[0, 1, 2], [3, 3, 4]], 3, (3 / 5 + 1) / 2), ([[0, 1, 2], [3, 3, 4]], 1, (1 / 2 + 1) / 2),
     ([[1], [4]], 1, 1), ([[4], [4]], 1, math.nan)],
    ids=["all neighbours", "the first alone", "one query is brought nothing", "no query is brought any"],
)  # fmt: skip
def test_the_labels_of_the_neighbours_are_pooled(index, k, share):
    neighbours = Neighbours(torch.zeros(2, len(index[0])), torch.tensor(index))
    assert neighbour_overlap(neighbours, TRAIN, QUERIES, k) == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize("queries", [LabelRows.from_lists([[0]] * 3, 5), LabelRows.from_lists([[0]] * 2, 4)])
def test_the_labels_of_other_queries_are_refused(queries):
    neighbours = Neighbours(torch.zeros(2, 1), torch.tensor([[0], [1]]))
    with pytest.raises(ValueError, match=r"labels of the queries; found: \(., .\); allowed: \(2, 5\)"):
        neighbour_overlap(neighbours, TRAIN, queries, 1)


def test_shared_labels_equal_a_loop():
    y_NL = torch.rand(50, 7, generator=torch.Generator().manual_seed(0)) < 0.3
    y_NL[4] = False
    rows = LabelRows.from_dense(y_NL)
    for query in range(50):
        expected = [len(set(rows.lists()[query]) & set(labels)) for labels in rows.lists()]
        assert label_similarity(rows.take(torch.tensor([query])), rows).tolist() == expected


def test_one_query_at_a_time():
    rows = LabelRows.from_lists([[0], [1]], 2)
    with pytest.raises(ValueError, match="not 2"):
        label_similarity(rows, rows)
