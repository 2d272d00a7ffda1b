"""Tests of the search after training where validation also chooses the rule by which labels are predicted."""

import itertools

import numpy as np
import pytest
import torch

from mlcl.evaluation.decision import choose
from mlcl.evaluation.knn import blend, knn_probabilities
from mlcl.evaluation.knn_search import QueryRows, Setting, search
from mlcl.evaluation.knn_sweeps import POOLED_LEVELS, Levels
from mlcl.evaluation.metric import METRICS
from mlcl.evaluation.retrieval import retrieve
from mlcl.evaluation.scores import Scoring, evaluate
from mlcl.labels import LabelRows

GRID = {"ks": (1, 4, 9), "lambdas": (0.0, 0.3, 0.7, 1.0), "temperatures": (0.2, 1.0)}


def scene(queries=150, seed=0):
    """Returns train, validation and test rows; the model is informative, but far below one half."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(12, 4, generator=g)
    centre_labels = torch.rand(12, 6, generator=g) < 0.35
    centre_index = torch.randint(0, 12, (200 + 2 * queries,), generator=g)
    x = centres[centre_index] + 0.7 * torch.randn(len(centre_index), 4, generator=g)
    y = centre_labels[centre_index] ^ (torch.rand(len(centre_index), 6, generator=g) < 0.05)
    p = torch.sigmoid(1.5 * y + torch.randn(y.shape, generator=g) - 4)
    slices = [slice(200, 200 + queries), slice(200 + queries, None)]
    data = [(retrieve(x[:200], x[rows], 9), LabelRows.from_dense(y[rows]), p[rows]) for rows in slices]
    return LabelRows.from_dense(y[:200]), *(QueryRows(*query_data) for query_data in data)


def mixed(rows, train, setting):
    votes = knn_probabilities(rows.neighbours, train, "multi_label", setting.k, setting.temperature, 6)
    return blend(votes, rows.model, setting.lambda_)


def looped(validation, test, train, metric, mode):
    """Yields the metric on validation and on test for each setting, with the decision of validation."""
    for k, lambda_, temperature in itertools.product(*GRID.values()):
        setting = Setting(k, lambda_, temperature)
        decision = choose(mixed(validation, train, setting), validation.targets, mode, metric)
        yield [
            evaluate("multi_label", mixed(rows, train, setting), rows.targets, decision, only=[metric])[
                metric
            ]
            for rows in (validation, test)
        ]


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1", "hamming_loss"])
def test_rounded_values_are_close_to_the_loop(metric):
    train, validation, test = scene()
    scoring = Scoring(metric, METRICS[metric].mode, "global")
    result = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    expected = np.array(list(looped(validation, test, train, metric, "global")))
    assert np.abs(result.table[metric] - expected[:, 0]).max() < 0.02
    assert np.abs(result.held_out - expected[:, 1]).max() < 0.04
    sign = 1 if scoring.mode == "max" else -1
    best = sign * (sign * expected[:, 0]).max()
    assert sign * result.metrics[metric] >= sign * best - 0.005


@pytest.mark.parametrize("mode", ["global", "per_label", "top_k"])
def test_the_decision_is_the_exact_one_of_the_best_setting(mode):
    train, validation, _ = scene()
    scoring = Scoring("micro_f1", "max", mode)
    result = search(validation, train, task="multi_label", scoring=scoring, **GRID)
    probabilities = mixed(validation, train, result.best)
    assert result.decision == choose(probabilities, validation.targets, mode, "micro_f1")
    expected = evaluate("multi_label", probabilities, validation.targets, result.decision)
    assert result.metrics == expected
    model_decision = choose(validation.model, validation.targets, mode, "micro_f1")
    model_metrics = evaluate("multi_label", validation.model, validation.targets, model_decision)
    assert result.metrics["micro_f1"] >= model_metrics["micro_f1"]
    half_result = search(validation, train, task="multi_label", scoring=Scoring("micro_f1", "max"), **GRID)
    assert result.metrics["micro_f1"] >= half_result.metrics["micro_f1"] - (0.02 if mode == "top_k" else 0)


def test_a_given_threshold_with_at_least_one_label():
    train, validation, _ = scene(queries=40)
    scoring = Scoring("micro_f1", "max", 0.5, at_least_one=True)
    result = search(validation, train, task="multi_label", scoring=scoring, **GRID)
    assert result.decision.at_least_one
    predicted = result.decision.predict(mixed(validation, train, result.best).numpy())
    assert predicted.any(1).all()


def test_a_metric_that_is_not_counted_is_evaluated_with_each_settings_decision():
    train, validation, test = scene(queries=30)
    scoring = Scoring("subset_accuracy", "max", "global")
    result = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    expected = np.array(list(looped(validation, test, train, "subset_accuracy", "global")))
    assert result.table["subset_accuracy"].tolist() == expected[:, 0].tolist()
    assert result.held_out.tolist() == expected[:, 1].tolist()


@pytest.mark.parametrize("metric", ["micro_f1", "map"])
def test_held_out_rows_at_one_half_equal_a_search_of_their_own(metric):
    train, validation, test = scene(queries=30)
    scoring = Scoring(metric, "max")
    result = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    test_result = search(test, train, task="multi_label", scoring=scoring, **GRID)
    assert result.held_out.tolist() == test_result.table[metric].tolist()


def test_the_model_alone_is_exact_with_few_true_entries():
    train, validation, _ = scene(queries=12)
    assert int(validation.targets.counts().sum()) < POOLED_LEVELS
    scoring, grid = Scoring("micro_f1", "max", "global"), GRID | {"lambdas": (0.0,)}
    result = search(validation, train, task="multi_label", scoring=scoring, **grid)
    decision = choose(validation.model, validation.targets, "global", "micro_f1")
    expected = evaluate("multi_label", validation.model, validation.targets, decision)["micro_f1"]
    assert result.table["micro_f1"].tolist() == pytest.approx([expected] * len(result.table), abs=1e-12)


def test_the_bounds_of_the_levels():
    _, validation, _ = scene()
    model = validation.model.numpy()
    levels = Levels(validation.targets, model, METRICS["micro_f1"])
    y_true = validation.targets.dense().numpy() > 0
    sizes = np.bincount(levels.of_model(model[y_true]), minlength=levels.count)
    assert len(sizes) == levels.count
    assert sizes.max() <= np.ceil(y_true.sum() / (levels.count - 2))
    q = np.linspace(0, 1, 10_001)
    d = 1 / (2 * (levels.count - 1))
    errors = np.abs((levels.of_votes(q) / (levels.count - 1)) ** 2 - q)
    assert (errors <= (2 * np.sqrt(q) + d) * d + 1e-12).all()
    assert levels.of_votes(np.array([0.0, 1.0])).tolist() == [0, levels.count - 1]
