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
    true = torch.rand(rows, labels, generator=g) < 0.25
    true[:, 0], true[:, 1], true[:3] = False, True, False
    known = torch.rand(rows, labels, generator=g) >= share
    known[:, 2], known[4] = False, False
    known[5], known[6] = torch.arange(labels) < 1, torch.arange(labels) == 1
    return p, true & known, known


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
    p, true, known = scene(seed, tied)
    found = evaluate("multi_label", p, with_unknown(true, known), only=[name], facts=FACTS)[name]
    assert found == pytest.approx(looped(name, p, true, known), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", LOOPED)
def test_targets_without_an_unknown_entry_give_the_same_bits(name):
    p, true, _ = scene(1)
    plain, told = LabelRows.from_dense(true), with_unknown(true, torch.ones_like(true))
    values = [evaluate("multi_label", p, rows, only=[name], facts=FACTS)[name] for rows in (plain, told)]
    assert values[0] == pytest.approx(values[1], abs=0, nan_ok=True)


def test_rows_that_tell_too_few_labels_leave_a_metric_without_a_value():
    p, true, _ = scene(0)
    rows = with_unknown(true, torch.arange(LABELS).expand(ROWS, -1) < 1)
    values = evaluate("multi_label", p, rows, only=["precision_at_5", "ndcg", "coverage_error"])
    assert all(math.isnan(value) for value in values.values())


def test_a_metric_that_does_not_say_it_is_masked_is_nan():
    p, true, known = scene(0)
    metric = Metric(name="mine", summary="", source="", labels=lambda prediction: 1.0)

    def value(mask):
        given = LabelPrediction(p.numpy(), p.numpy() > 0.5, *np.nonzero(true.numpy()), 1, known=mask)
        return metric.of_labels(given)

    assert value(None) == 1.0
    assert math.isnan(value(known.numpy()))


def test_targets_that_tell_nothing_are_refused():
    p, true, known = scene(0)
    rows = with_unknown(true, torch.zeros_like(known))
    assert not known_rows("multi_label", rows).any()
    with pytest.raises(ValueError, match="no row has a target"):
        evaluate("multi_label", p, rows)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("mode", ["global", "per_label"])
def test_an_unknown_entry_chooses_no_threshold(name, mode):
    p, true, known = scene(4, rows=60, labels=5)
    rows = with_unknown(true, known)
    other = torch.where(known, p, 1 - p)
    assert choose(p, rows, mode, name) == choose(other, rows, mode, name)
    plain = choose(p, LabelRows.from_dense(true), mode, name)
    told = choose(p, with_unknown(true, torch.ones_like(known)), mode, name)
    assert plain == told


def test_thresholds_by_label_are_found_where_the_known_entries_are_separable():
    """Unknown entries that are taken as negatives would hide the threshold between a label's two classes."""
    p, true, known = scene(5, rows=200, labels=4, share=0.4)
    known[:, 2], known[4:7] = True, True
    wanted = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64)
    true = (p >= wanted) & known
    found = choose(p, with_unknown(true, known), "per_label", "macro_f1")
    predicted = torch.from_numpy(found.predict(p.numpy()))
    assert bool((predicted == true)[known].float().mean() > 0.97)


GRID = {"ks": (1, 3), "lambdas": (0.0, 0.25, 0.5, 1.0), "temperatures": (0.1, 1.0)}


def neighbourhood():
    g = torch.Generator().manual_seed(2)
    train, queries = (torch.randn(ROWS, 3, generator=g) for _ in range(2))
    return retrieve(train, queries, 3)


@pytest.mark.parametrize("threshold", ["global", "per_label", "top_k"])
@pytest.mark.parametrize("name", COUNTED)
def test_the_search_with_a_chosen_decision_reads_known_entries_alone(name, threshold):
    """The model's probabilities of unknown entries do not change the rounded values of any setting."""
    p, true, known = scene(0)
    targets, train, neighbours = with_unknown(true, known), with_unknown(*scene(1)[1:]), neighbourhood()
    found = [
        search(
            QueryRows(neighbours, targets, model.float(), FACTS),
            train,
            task="multi_label",
            scoring=Scoring(name, METRICS[name].mode, threshold),
            **GRID,
        )
        for model in (p, torch.where(known, p, torch.where(p > 0.5, p, p / 3)))
    ]
    if threshold != "top_k":  # a row's most probable labels may be unknown
        assert found[0].table.tolist() == found[1].table.tolist()
        assert found[0].decision == found[1].decision
    best = found[0]
    votes = knn_probabilities(neighbours, train, "multi_label", best.best.k, best.best.temperature, LABELS)
    mixed = blend(votes, p.float(), best.best.lambda_)
    assert evaluate("multi_label", mixed, targets, best.decision)[name] == best.metrics[name]


def test_an_unknown_entry_of_a_neighbour_counts_as_absent():
    _, true, known = scene(1)
    neighbours = neighbourhood()
    votes = [
        knn_probabilities(neighbours, rows, "multi_label", 3, 0.5, LABELS)
        for rows in (with_unknown(true, known), LabelRows.from_dense(true))
    ]
    assert torch.equal(*votes)


def test_the_overlap_leaves_out_labels_that_the_query_does_not_tell():
    (_, train, _), (_, true, known), neighbours = scene(1), scene(0), neighbourhood()
    shares = []
    for i, near in enumerate(neighbours.index.tolist()):
        labels = [label for j in near for label in range(LABELS) if train[j, label] and known[i, label]]
        if labels:
            shares.append(sum(bool(true[i, label]) for label in labels) / len(labels))
    found = neighbour_overlap(neighbours, LabelRows.from_dense(train), with_unknown(true, known), 3)
    assert found == pytest.approx(math.fsum(shares) / len(shares), rel=1e-12)


def test_retrieval_compares_labels_that_both_rows_tell_and_clusters_have_no_value():
    _, true, known = scene(0)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 4, generator=g)
    found = evaluate_embeddings(x, with_unknown(true, known), ["retrieval", "clustering"])
    assert math.isnan(found["nmi"])
    assert math.isnan(found["ari"])
    rows = [i for i in range(ROWS) if true[i].any()]

    def jaccard(a, b):
        both = known[a] & known[b]
        either = int(((true[a] | true[b]) & both).sum())
        return int((true[a] & true[b] & both).sum()) / either if either else 0.0

    values = []
    for q in rows:
        others = [j for j in rows if j != q]
        near = min(others, key=lambda j: (float((x[q] - x[j]).double().norm()), j))
        ideal = max(jaccard(q, j) for j in others)
        if ideal:
            values.append(jaccard(q, near) / ideal)
    assert found["retrieval_recall_at_1"] == pytest.approx(math.fsum(values) / len(values), rel=1e-9)
    groups = {each.group for each in METRICS.values() if isinstance(each, EmbeddingMetric)}
    assert groups == {"retrieval", "clustering"}


def test_retrieval_compares_the_aspects_that_both_rows_rate():
    x = torch.tensor([[0.0], [1.0], [3.0], [-2.0]])
    rated = torch.tensor([[0, 1], [0, -1], [1, 1], [0, 0]])
    found = evaluate_embeddings(x, as_label_sets(rated, 2), ["retrieval", "clustering"])
    # Row 1 agrees with rows 0 and 3 in the one aspect that it rates; row 3 is nearest to row 0, one of three.
    assert found["retrieval_recall_at_1"] == pytest.approx((1 + 1 + 0 + 1 / 3) / 4)
    assert math.isnan(found["nmi"])
    whole = as_label_sets(rated[[0, 2, 3]], 2)
    assert whole.unknown is None
    assert whole.lists() == [[0, 3], [1, 3], [0, 2]]
