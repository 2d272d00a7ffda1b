"""Tests of retrieval against a loop over queries, and of clusters against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from sklearn.cluster import KMeans

from mlcl.evaluation import EmbeddingMetric, Metric, evaluate_embeddings
from mlcl.labels import LabelRows

GROUPS = ("clustering", "retrieval")


def scene(seed, rows=50):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    y = rng.random((rows, 7)) < 0.25
    y[:5] = False
    y[5:, 6] = False
    y[5] = np.arange(7) == 6  # the row has a label that no other row has
    return torch.from_numpy(x), LabelRows.from_dense(torch.from_numpy(y))


def retrieval_loop(x, sets, k):
    """Returns the means of graded average precision and of recall at k over the queries."""
    rows = [row for row, labels in enumerate(sets) if labels]
    maps, recalls, x = [], [], x.double()
    for q in rows:
        others = [j for j in rows if j != q]
        grade = {j: len(sets[q] & sets[j]) / len(sets[q] | sets[j]) for j in others}
        if not any(grade.values()):
            continue
        distance = ((x - x[q]) ** 2).sum(1).tolist()
        nearest = sorted(others, key=lambda j: (distance[j], j))
        gains = [grade[j] for j in nearest[:k]]
        best = sorted(grade.values(), reverse=True)[:k]
        maps.append(graded_sum(gains) / graded_sum(best))
        recalls.append(sum(gains) / sum(best))
    return math.fsum(maps) / len(maps), math.fsum(recalls) / len(recalls)


def graded_sum(gains):
    return sum(gain * sum(gains[: rank + 1]) / (rank + 1) for rank, gain in enumerate(gains))


@pytest.mark.parametrize("round_", [lambda x: x, torch.round, torch.ones_like], ids=["", "ties", "all equal"])
@pytest.mark.parametrize(("seed", "rows"), [(0, 50), (1, 50), (2, 13), (3, 270)])
def test_retrieval_equals_a_loop(seed, rows, round_):
    x, labels = scene(seed, rows)
    x = round_(x)
    sets = [set(row) for row in labels.lists()]
    metrics = evaluate_embeddings(x, labels, ["retrieval"])
    map_, recall = retrieval_loop(x, sets, 10)
    expected = {"retrieval_map_at_10": map_, "retrieval_recall_at_10": recall}
    expected["retrieval_recall_at_1"] = retrieval_loop(x, sets, 1)[1]
    assert metrics == pytest.approx(expected, abs=1e-12)


def test_with_one_label_a_row_it_is_average_precision():
    generator = torch.Generator().manual_seed(0)
    x, class_N = torch.randn(30, 3, generator=generator), torch.arange(30) % 4
    metrics = evaluate_embeddings(x, LabelRows.from_classes(class_N, 4), ["retrieval"])
    values = []
    for q in range(30):
        order = (x - x[q]).norm(dim=1).argsort(stable=True)
        hits = (class_N[order[order != q][:10]] == class_N[q]).double()
        n_relevant = min(10, int((class_N == class_N[q]).sum()) - 1)
        values.append(float((hits * hits.cumsum(0) / torch.arange(1, 11)).sum()) / n_relevant)
    assert metrics["retrieval_map_at_10"] == pytest.approx(np.mean(values), abs=1e-12)


def test_like_rows_together_are_found_and_clustered_wholly():
    x = torch.tensor([[0.0, 0], [0, 0.1], [9, 9], [9, 9.1]])
    metrics = evaluate_embeddings(x, LabelRows.from_lists([[0, 1], [0, 1], [1], [1]], 2), GROUPS)
    assert metrics == dict.fromkeys(metrics, 1.0)
    assert len(metrics) == 5


def test_clusters_are_those_of_scikit_learn():
    x, labels = scene(0)
    metrics = evaluate_embeddings(x, labels, ["clustering"])
    label_sets = [tuple(row_labels) for row_labels in labels.lists() if row_labels]
    classes = [sorted(set(label_sets)).index(label_set) for label_set in label_sets]
    rows = [row for row, row_labels in enumerate(labels.lists()) if row_labels]
    clusters = KMeans(len(set(label_sets)), random_state=0).fit_predict(x[rows].double().numpy())
    assert metrics == pytest.approx(
        {
            "ari": sk.adjusted_rand_score(classes, clusters),
            "nmi": sk.normalized_mutual_info_score(classes, clusters),
        },
        abs=1e-12,
    )


@pytest.mark.parametrize("lists", [[[], []], [[0], []]])
def test_too_few_rows_have_no_retrieval(lists):
    metrics = evaluate_embeddings(torch.rand(2, 3), LabelRows.from_lists(lists, 2), ["retrieval"])
    assert all(math.isnan(value) for value in metrics.values())


def test_each_row_has_an_embedding():
    with pytest.raises(ValueError, match="4 embeddings for 2 label sets"):
        evaluate_embeddings(torch.rand(4, 3), LabelRows.from_lists([[0], [0]], 2), ["retrieval"])
    with pytest.raises(ValueError, match="embeddings are not finite"):
        evaluate_embeddings(torch.rand(1, 3) / 0, LabelRows.from_lists([[0]], 2), ["clustering"])
    with pytest.raises(TypeError, match="not a tensor; found: ndarray"):
        evaluate_embeddings(torch.rand(1, 3).numpy(), LabelRows.from_lists([[0]], 2), ["clustering"])
    with pytest.raises(TypeError, match=r"label rows are needed, .* found: Tensor"):
        evaluate_embeddings(torch.rand(1, 3), torch.tensor([0]), ["clustering"])


def test_a_group_that_is_not_asked_for_costs_nothing():
    assert evaluate_embeddings(torch.rand(2, 3), LabelRows.from_lists([[0], [1]], 2), ["bands"]) == {}
    with pytest.raises(ValueError, match="unknown groups of metrics; found: bandz"):
        evaluate_embeddings(torch.rand(2, 3), LabelRows.from_lists([[0], [1]], 2), ["bandz"])


def test_a_metric_of_embeddings_needs_a_group():
    with pytest.raises(ValueError, match="needs a group"):
        EmbeddingMetric(name="n", summary="s", source="s", of_rows=lambda rows: 0.0)


@pytest.mark.parametrize("mode", ["higher", "maximize", ""])
def test_a_metric_is_larger_or_smaller_the_better(mode):
    message = f"the mode {mode!r}; allowed: max, min"
    with pytest.raises(ValueError, match=message):
        EmbeddingMetric(name="n", group="g", summary="s", source="s", mode=mode, of_rows=lambda rows: 0.0)
    with pytest.raises(ValueError, match=message):
        Metric(name="n", summary="s", source="s", mode=mode, hits=lambda right, known: right / known)
