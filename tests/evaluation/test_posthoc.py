"""Tests of the search after training: a fine grid against one setting after the other, ties, wrong input."""

import itertools
import logging

import pytest
import torch
from evaluation.metric_loops import COUNTED

from mlcl.errors import UserError
from mlcl.evaluation.decision import Decision
from mlcl.evaluation.knn import blend, knn_probabilities
from mlcl.evaluation.knn_search import QueryRows, Setting, search
from mlcl.evaluation.metric import METRICS
from mlcl.evaluation.retrieval import Neighbours, retrieve
from mlcl.evaluation.scores import Scoring, evaluate
from mlcl.labels import LabelRows

KS = (1, 2, 3, 5, 8)
LAMBDAS = tuple(i / 20 for i in range(21))
TEMPERATURES = (1e-3, 0.1, 1.0, 30.0)
CASES = [*(("multi_label", name, 0.3) for name in COUNTED), ("single", "accuracy", 0.5),
         ("aspects", "accuracy", 0.5), ("aspects", "accuracy_1", 0.5)]  # fmt: skip


def expect_brute_force(neighbours, labels, targets, model, task, metric, threshold=0.5, at_least_one=False):
    mode = METRICS["accuracy" if metric not in METRICS else metric].mode
    grid = {"ks": KS, "lambdas": LAMBDAS, "temperatures": TEMPERATURES}
    rows, options = QueryRows(neighbours, targets, model), {"at_least_one": at_least_one}
    scoring, decision = Scoring(metric, mode, threshold, **options), Decision.fixed(threshold, **options)
    result = search(rows, labels, task=task, scoring=scoring, **grid)
    expected = []
    for k, lambda_, temperature in itertools.product(*grid.values()):
        votes = knn_probabilities(neighbours, labels, task, k, temperature, model.shape[-1])
        probabilities = blend(votes, model, lambda_)
        value = evaluate(task, probabilities, targets, decision, only=[metric])[metric]
        expected.append((k, lambda_, temperature, value))
    assert result.table.tolist() == expected
    sign = -1 if mode == "max" else 1
    *setting, value = min(expected, key=lambda row: (sign * row[3], *row[:3]))
    assert (result.best, result.metrics[metric]) == (Setting(*setting), value)


def scene(seed, tied, rows=60, queries=40):
    """Returns neighbours and a generator; with `tied`, many distances are equal."""
    generator = torch.Generator().manual_seed(seed)

    def points(n):
        return torch.randint(0, 2, (n, 3), generator=generator).float() if tied else normal(n)

    def normal(n):
        return torch.randn(n, 3, generator=generator)

    return retrieve(points(rows), points(queries), max(KS)), generator


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("task", "metric", "threshold"), CASES)
def test_a_fine_grid_equals_one_setting_after_the_other(task, metric, threshold, tied):
    neighbours, generator = scene(0, tied)
    shape = {"multi_label": (6,), "single": (), "aspects": (3,)}[task]

    def targets_of(n):
        if task == "multi_label":
            return LabelRows.from_dense(torch.rand(n, *shape, generator=generator) < 0.3)
        return torch.randint(-1, 5, (n, *shape), generator=generator)

    labels, targets = targets_of(60), targets_of(40)
    if task == "aspects":  # few labels of the last aspect are known
        labels[:, 2] = torch.where(torch.rand(60, generator=generator) < 0.7, -1, labels[:, 2])
    model = torch.rand((40, *shape, *(() if task == "multi_label" else (5,))), generator=generator)
    model = (model * 4).round() / 4 if tied else model
    expect_brute_force(neighbours, labels, targets, model, task, metric, threshold)


@pytest.mark.parametrize("metric", ["micro_f1", "hamming_loss"])
def test_rows_without_a_label_above_a_given_threshold_have_their_most_probable_one(metric):
    neighbours, generator = scene(0, tied=False)
    labels, targets = (LabelRows.from_dense(torch.rand(n, 6, generator=generator) < 0.3) for n in (60, 40))
    model = torch.rand(40, 6, generator=generator)
    expect_brute_force(neighbours, labels, targets, model, "multi_label", metric, 0.9, at_least_one=True)


def test_lines_that_hardly_differ():
    neighbours, generator = scene(2, tied=True)
    labels = torch.randint(0, 3, (60,), generator=generator)
    targets = torch.randint(0, 3, (40,), generator=generator)
    for model in (1 / 3 + torch.rand(40, 3, generator=generator) * 1e-7, torch.zeros(40, 3)):
        expect_brute_force(neighbours, labels, targets, model, "single", "accuracy")


def test_neighbours_and_model_at_the_threshold():
    neighbours = Neighbours(torch.zeros(1, 8), torch.tensor([[0, 1] * 4]))
    labels, targets = LabelRows.from_lists([[0], [1]], 2), LabelRows.from_lists([[0]], 2)
    model = torch.tensor([[0.5, 0.4999999]])
    expect_brute_force(neighbours, labels, targets, model, "multi_label", "micro_f1")


NEAR = Neighbours(torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 1]]))
DATA = torch.tensor([1, 1]), torch.tensor([1]), torch.tensor([[0.4, 0.6]])


def run(labels, targets, model, **changes):
    options = {"task": "single", "ks": (1, 2), "lambdas": (0.0, 1.0), "temperatures": (1.0, 0.1)}
    options |= {"scoring": Scoring("accuracy", "max")} | changes
    return search(QueryRows(NEAR, targets, model), labels, **options)


def test_ties_prefer_the_smallest_k_then_lambda_then_temperature():
    result = run(*DATA)
    assert result.best == Setting(1, 0.0, 0.1)
    assert result.table["accuracy"].tolist() == [1.0] * 8
    assert result.table.dtype.names == ("k", "lambda", "temperature", "accuracy")


def test_a_k_beyond_the_neighbours_is_clipped(caplog):
    with caplog.at_level(logging.WARNING):
        result = run(*DATA, ks=(2, 50))
    assert set(result.table["k"].tolist()) == {2}
    assert "2 instead of 50" in caplog.text


LABELS = LabelRows.from_lists([[], []], 2), LabelRows.from_lists([[]], 2), torch.tensor([[0.4, 0.6]])
MAP = {"task": "multi_label", "scoring": Scoring("map", "max")}


@pytest.mark.parametrize(
    ("data", "changes", "error", "message"),
    [(DATA, {"ks": ()}, ValueError, "grid"), (DATA, {"ks": (0,)}, ValueError, "grid"),
     (DATA, {"lambdas": (1.5,)}, ValueError, "grid"),
     (DATA, {"scoring": Scoring("micro_f1", "max")}, UserError, r"micro_f1.*accuracy"),
     (LABELS, MAP, ValueError, "map has no value")],
)  # fmt: skip
def test_bad_input(data, changes, error, message):
    with pytest.raises(error, match=message):
        run(*data, **changes)
