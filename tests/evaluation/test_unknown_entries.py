"""Tests of unknown entries: metrics, decisions and neighbours against loops over the known entries."""

import math

import numpy as np
import pytest
import torch
from evaluation.metric_loops import COUNTED, of_labels, with_unknown

from mlcl.evaluation.decision import choose
from mlcl.evaluation.knn import blend, knn_probabilities, neighbour_overlap
from mlcl.evaluation.knn_search import QueryRows, search
from mlcl.evaluation.metric import METRICS, EmbeddingMetric, Metric
from mlcl.evaluation.predictions import LabelPrediction
from mlcl.evaluation.retrieval import retrieve
from mlcl.evaluation.scores import Scoring, evaluate, evaluate_embeddings, metric_names
from mlcl.evaluation.tasks import LabelFacts, as_label_sets, known_rows
from mlcl.labels import LabelRows

ROWS, LABELS = 50, 17
FACTS = LabelFacts(band=np.arange(LABELS) % 3)


def scene(seed, tied=False, rows=ROWS, labels=LABELS, share=0.25):
    """Returns probabilities, true and known entries; label 0 is never true, 1 always, and 2 never known."""
    g = torch.Generator().manual_seed(seed)
    p = torch.rand(rows, labels, generator=g, dtype=torch.float64)
    p = (p * 8).round() / 8 if tied else p
    y_true = torch.rand(rows, labels, generator=g) < 0.25
    y_true[:, 0], y_true[:, 1], y_true[:3] = False, True, False
    known_NL = torch.rand(rows, labels, generator=g) >= share
    known_NL[:, 2], known_NL[4] = False, False
    known_NL[5], known_NL[6] = torch.arange(labels) < 1, torch.arange(labels) == 1
    return p, y_true & known_NL, known_NL


def looped(name, p, true, known):
    """Returns the metric, computed by loops over known entries."""
    lists = [[set(torch.nonzero(row).flatten().tolist()) for row in rows] for rows in (true, known)]
    return of_labels(name, p.tolist(), *lists)


NAMES = list(metric_names("multi_label", n_labels=LABELS, groups=None))
LOOPED = [name for name in NAMES if METRICS[name].takes_unknown]


def test_every_metric_but_those_of_a_hierarchy_leaves_unknown_entries_out():
    assert set(NAMES) - set(LOOPED) == {name for name in NAMES if METRICS[name].group == "hierarchy"}


@pytest.mark.parametrize("name", LOOPED)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_metric_equals_the_loop_over_known_entries(name, tied, seed):
    p, y_true, known_NL = scene(seed, tied)
    actual = evaluate("multi_label", p, with_unknown(y_true, known_NL), only=[name], facts=FACTS)[name]
    assert actual == pytest.approx(looped(name, p, y_true, known_NL), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", LOOPED)
def test_targets_without_an_unknown_entry_give_the_same_bits(name):
    p, y_true, _ = scene(1)
    plain_rows, full_rows = LabelRows.from_dense(y_true), with_unknown(y_true, torch.ones_like(y_true))
    values = [
        evaluate("multi_label", p, rows, only=[name], facts=FACTS)[name] for rows in (plain_rows, full_rows)
    ]
    assert values[0] == pytest.approx(values[1], abs=0, nan_ok=True)


def test_rows_that_tell_too_few_labels_leave_a_metric_without_a_value():
    p, y_true, _ = scene(0)
    rows = with_unknown(y_true, torch.arange(LABELS).expand(ROWS, -1) < 1)
    values = evaluate("multi_label", p, rows, only=["precision_at_5", "ndcg", "coverage_error"])
    assert all(math.isnan(value) for value in values.values())


def test_a_metric_that_does_not_say_it_is_masked_is_nan():
    p, y_true, known_NL = scene(0)
    metric = Metric(name="mine", summary="", source="", labels=lambda prediction: 1.0)

    def value(mask):
        prediction = LabelPrediction(p.numpy(), p.numpy() > 0.5, *np.nonzero(y_true.numpy()), 1, known=mask)
        return metric.of_labels(prediction)

    assert value(None) == 1.0
    assert math.isnan(value(known_NL.numpy()))


def test_targets_that_tell_nothing_are_refused():
    p, y_true, known_NL = scene(0)
    rows = with_unknown(y_true, torch.zeros_like(known_NL))
    assert not known_rows("multi_label", rows).any()
    with pytest.raises(ValueError, match="no row has a target"):
        evaluate("multi_label", p, rows)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("mode", ["global", "per_label"])
def test_an_unknown_entry_chooses_no_threshold(name, mode):
    p, y_true, known_NL = scene(4, rows=60, labels=5)
    rows = with_unknown(y_true, known_NL)
    other_p = torch.where(known_NL, p, 1 - p)
    assert choose(p, rows, mode, name) == choose(other_p, rows, mode, name)
    expected = choose(p, LabelRows.from_dense(y_true), mode, name)
    actual = choose(p, with_unknown(y_true, torch.ones_like(known_NL)), mode, name)
    assert expected == actual


def test_thresholds_by_label_are_found_where_the_known_entries_are_separable():
    """Unknown entries that are taken as negatives would hide the threshold between a label's two classes."""
    p, y_true, known_NL = scene(5, rows=200, labels=4, share=0.4)
    known_NL[:, 2], known_NL[4:7] = True, True
    thresholds = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64)
    y_true = (p >= thresholds) & known_NL
    decision = choose(p, with_unknown(y_true, known_NL), "per_label", "macro_f1")
    predicted = torch.from_numpy(decision.predict(p.numpy()))
    assert bool((predicted == y_true)[known_NL].float().mean() > 0.97)


GRID = {"ks": (1, 3), "lambdas": (0.0, 0.25, 0.5, 1.0), "temperatures": (0.1, 1.0)}


def neighbourhood():
    g = torch.Generator().manual_seed(2)
    train, queries = (torch.randn(ROWS, 3, generator=g) for _ in range(2))
    return retrieve(train, queries, 3)


@pytest.mark.parametrize("threshold", ["global", "per_label", "top_k"])
@pytest.mark.parametrize("name", COUNTED)
def test_the_search_with_a_chosen_decision_reads_known_entries_alone(name, threshold):
    """The model's probabilities of unknown entries do not change the rounded values of any setting."""
    p, y_true, known_NL = scene(0)
    targets, train, neighbours = with_unknown(y_true, known_NL), with_unknown(*scene(1)[1:]), neighbourhood()
    results = [
        search(
            QueryRows(neighbours, targets, model.float(), FACTS),
            train,
            task="multi_label",
            scoring=Scoring(name, METRICS[name].mode, threshold),
            **GRID,
        )
        for model in (p, torch.where(known_NL, p, torch.where(p > 0.5, p, p / 3)))
    ]
    if threshold != "top_k":  # a row's most probable labels may be unknown
        assert results[0].table.tolist() == results[1].table.tolist()
        assert results[0].decision == results[1].decision
    best = results[0]
    votes = knn_probabilities(neighbours, train, "multi_label", best.best.k, best.best.temperature, LABELS)
    probabilities = blend(votes, p.float(), best.best.lambda_)
    assert evaluate("multi_label", probabilities, targets, best.decision)[name] == best.metrics[name]


def test_an_unknown_entry_of_a_neighbour_counts_as_absent():
    _, y_true, known_NL = scene(1)
    neighbours = neighbourhood()
    votes = [
        knn_probabilities(neighbours, rows, "multi_label", 3, 0.5, LABELS)
        for rows in (with_unknown(y_true, known_NL), LabelRows.from_dense(y_true))
    ]
    assert torch.equal(*votes)


def test_the_overlap_leaves_out_labels_that_the_query_does_not_tell():
    (_, train, _), (_, y_true, known_NL), neighbours = scene(1), scene(0), neighbourhood()
    shares = []
    for i, neighbour_rows in enumerate(neighbours.index.tolist()):
        labels = [
            label for j in neighbour_rows for label in range(LABELS) if train[j, label] and known_NL[i, label]
        ]
        if labels:
            shares.append(sum(bool(y_true[i, label]) for label in labels) / len(labels))
    overlap = neighbour_overlap(neighbours, LabelRows.from_dense(train), with_unknown(y_true, known_NL), 3)
    assert overlap == pytest.approx(math.fsum(shares) / len(shares), rel=1e-12)


def test_retrieval_compares_labels_that_both_rows_tell_and_clusters_have_no_value():
    _, y_true, known_NL = scene(0)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 4, generator=g)
    metrics = evaluate_embeddings(x, with_unknown(y_true, known_NL), ["retrieval", "clustering"])
    assert math.isnan(metrics["nmi"])
    assert math.isnan(metrics["ari"])
    rows = [i for i in range(ROWS) if y_true[i].any()]

    def jaccard(a, b):
        both_known_L = known_NL[a] & known_NL[b]
        union_size = int(((y_true[a] | y_true[b]) & both_known_L).sum())
        return int((y_true[a] & y_true[b] & both_known_L).sum()) / union_size if union_size else 0.0

    values = []
    for q in rows:
        others = [j for j in rows if j != q]
        nearest = min(others, key=lambda j: (float((x[q] - x[j]).double().norm()), j))
        best = max(jaccard(q, j) for j in others)
        if best:
            values.append(jaccard(q, nearest) / best)
    assert metrics["retrieval_recall_at_1"] == pytest.approx(math.fsum(values) / len(values), rel=1e-9)
    groups = {metric.group for metric in METRICS.values() if isinstance(metric, EmbeddingMetric)}
    assert groups == {"retrieval", "clustering"}


def test_retrieval_compares_the_aspects_that_both_rows_rate():
    x = torch.tensor([[0.0], [1.0], [3.0], [-2.0]])
    ratings = torch.tensor([[0, 1], [0, -1], [1, 1], [0, 0]])
    metrics = evaluate_embeddings(x, as_label_sets(ratings, 2), ["retrieval", "clustering"])
    # Row 1 agrees with rows 0 and 3 in the one aspect that it rates; row 3 is nearest to row 0, one of three.
    assert metrics["retrieval_recall_at_1"] == pytest.approx((1 + 1 + 0 + 1 / 3) / 4)
    assert math.isnan(metrics["nmi"])
    full_sets = as_label_sets(ratings[[0, 2, 3]], 2)
    assert full_sets.unknown is None
    assert full_sets.lists() == [[0, 3], [1, 3], [0, 2]]
