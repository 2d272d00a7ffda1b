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
    of_centre = torch.rand(12, 6, generator=g) < 0.35
    which = torch.randint(0, 12, (200 + 2 * queries,), generator=g)
    x = centres[which] + 0.7 * torch.randn(len(which), 4, generator=g)
    y = of_centre[which] ^ (torch.rand(len(which), 6, generator=g) < 0.05)
    p = torch.sigmoid(1.5 * y + torch.randn(y.shape, generator=g) - 4)
    parts = [slice(200, 200 + queries), slice(200 + queries, None)]
    data = [(retrieve(x[:200], x[part], 9), LabelRows.from_dense(y[part]), p[part]) for part in parts]
    return LabelRows.from_dense(y[:200]), *(QueryRows(*its) for its in data)


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
    found = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    expected = np.array(list(looped(validation, test, train, metric, "global")))
    assert np.abs(found.table[metric] - expected[:, 0]).max() < 0.02
    assert np.abs(found.held_out - expected[:, 1]).max() < 0.04
    sign = 1 if scoring.mode == "max" else -1
    best = sign * (sign * expected[:, 0]).max()
    assert sign * found.metrics[metric] >= sign * best - 0.005


@pytest.mark.parametrize("mode", ["global", "per_label", "top_k"])
def test_the_decision_is_the_exact_one_of_the_best_setting(mode):
    train, validation, _ = scene()
    scoring = Scoring("micro_f1", "max", mode)
    found = search(validation, train, task="multi_label", scoring=scoring, **GRID)
    probabilities = mixed(validation, train, found.best)
    assert found.decision == choose(probabilities, validation.targets, mode, "micro_f1")
    expected = evaluate("multi_label", probabilities, validation.targets, found.decision)
    assert found.metrics == expected
    alone = choose(validation.model, validation.targets, mode, "micro_f1")
    model = evaluate("multi_label", validation.model, validation.targets, alone)
    assert found.metrics["micro_f1"] >= model["micro_f1"]
    at_half = search(validation, train, task="multi_label", scoring=Scoring("micro_f1", "max"), **GRID)
    assert found.metrics["micro_f1"] >= at_half.metrics["micro_f1"] - (0.02 if mode == "top_k" else 0)


def test_a_given_threshold_with_at_least_one_label():
    train, validation, _ = scene(queries=40)
    scoring = Scoring("micro_f1", "max", 0.5, at_least_one=True)
    found = search(validation, train, task="multi_label", scoring=scoring, **GRID)
    assert found.decision.at_least_one
    predicted = found.decision.predict(mixed(validation, train, found.best).numpy())
    assert predicted.any(1).all()


def test_a_metric_that_is_not_counted_is_evaluated_with_each_settings_decision():
    train, validation, test = scene(queries=30)
    scoring = Scoring("subset_accuracy", "max", "global")
    found = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    expected = np.array(list(looped(validation, test, train, "subset_accuracy", "global")))
    assert found.table["subset_accuracy"].tolist() == expected[:, 0].tolist()
    assert found.held_out.tolist() == expected[:, 1].tolist()


@pytest.mark.parametrize("metric", ["micro_f1", "map"])
def test_held_out_rows_at_one_half_equal_a_search_of_their_own(metric):
    train, validation, test = scene(queries=30)
    scoring = Scoring(metric, "max")
    both = search(validation, train, task="multi_label", scoring=scoring, held_out=test, **GRID)
    alone = search(test, train, task="multi_label", scoring=scoring, **GRID)
    assert both.held_out.tolist() == alone.table[metric].tolist()


def test_the_model_alone_is_exact_with_few_true_entries():
    train, validation, _ = scene(queries=12)
    assert int(validation.targets.counts().sum()) < POOLED_LEVELS
    scoring, grid = Scoring("micro_f1", "max", "global"), GRID | {"lambdas": (0.0,)}
    found = search(validation, train, task="multi_label", scoring=scoring, **grid)
    decision = choose(validation.model, validation.targets, "global", "micro_f1")
    exact = evaluate("multi_label", validation.model, validation.targets, decision)["micro_f1"]
    assert found.table["micro_f1"].tolist() == pytest.approx([exact] * len(found.table), abs=1e-12)


def test_the_bounds_of_the_levels():
    _, validation, _ = scene()
    model = validation.model.numpy()
    levels = Levels(validation.targets, model, METRICS["micro_f1"])
    true = validation.targets.dense().numpy() > 0
    sizes = np.bincount(levels.of_model(model[true]), minlength=levels.count)
    assert len(sizes) == levels.count
    assert sizes.max() <= np.ceil(true.sum() / (levels.count - 2))
    q = np.linspace(0, 1, 10_001)
    d = 1 / (2 * (levels.count - 1))
    moved = np.abs((levels.of_votes(q) / (levels.count - 1)) ** 2 - q)
    assert (moved <= (2 * np.sqrt(q) + d) * d + 1e-12).all()
    assert levels.of_votes(np.array([0.0, 1.0])).tolist() == [0, levels.count - 1]
