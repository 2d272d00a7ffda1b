import itertools
import logging

import pytest
import torch

from mlcl.errors import UserError
from mlcl.evaluation import (
    Decision,
    Neighbours,
    QueryRows,
    Scoring,
    Setting,
    blend,
    evaluate,
    knn_probabilities,
    retrieve,
    search,
)
from mlcl.labels import LabelRows

KS = (1, 2, 3, 5, 8)
LAMBDAS = tuple(i / 20 for i in range(21))
TEMPERATURES = (1e-3, 0.1, 1.0, 30.0)


def value_at(task, probabilities, targets, threshold, metric):
    return evaluate(task, probabilities, targets, Decision.fixed(threshold), only=[metric])[metric]


def brute_force(neighbours, labels, targets, model, task, metric, threshold=0.5):
    for k, lambda_, temperature in itertools.product(KS, LAMBDAS, TEMPERATURES):
        votes = knn_probabilities(neighbours, labels, task, k, temperature, model.shape[-1])
        mixed = blend(votes, model, lambda_)
        yield k, lambda_, temperature, value_at(task, mixed, targets, threshold, metric)


def expect_brute_force(neighbours, labels, targets, model, task, metric, mode="max", threshold=0.5):
    got = search(
        QueryRows(neighbours, targets, model),
        labels,
        task=task,
        ks=KS,
        lambdas=LAMBDAS,
        temperatures=TEMPERATURES,
        scoring=Scoring(metric, mode, threshold),
    )
    expected = list(brute_force(neighbours, labels, targets, model, task, metric, threshold))
    assert got.table.tolist() == expected
    sign = -1 if mode == "max" else 1
    k, lambda_, temperature, value = min(expected, key=lambda row: (sign * row[3], *row[:3]))
    assert got.best == Setting(k, lambda_, temperature)
    assert got.metrics[metric] == value
    return got


def scene(seed, tied, rows=60, queries=40):
    """Tied: distances, probabilities and so crossings fall on the grid and on each other."""
    generator = torch.Generator().manual_seed(seed)
    make = (
        (lambda n: torch.randint(0, 2, (n, 3), generator=generator).float())
        if tied
        else (lambda n: torch.randn(n, 3, generator=generator))
    )
    return retrieve(make(rows), make(queries), max(KS)), generator


def probabilities(shape, tied, generator):
    values = torch.rand(shape, generator=generator)
    return (values * 4).round() / 4 if tied else values


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("threshold", [0.5, 0.3])
@pytest.mark.parametrize(
    ("metric", "mode"),
    [("micro_f1", "max"), ("macro_f1", "max"), ("macro_f1_caml", "max"), ("hamming_loss", "min")],
)
def test_counts_equal_brute_force(metric, mode, threshold, tied):
    neighbours, generator = scene(0, tied)
    labels = LabelRows.from_dense(torch.rand(60, 6, generator=generator) < 0.3)
    targets = LabelRows.from_dense(torch.rand(40, 6, generator=generator) < 0.3)
    model = probabilities((40, 6), tied, generator)
    expect_brute_force(neighbours, labels, targets, model, "multi_label", metric, mode, threshold)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("missing", [0, -1])
@pytest.mark.parametrize("seed", range(3))
def test_accuracy_equals_brute_force(seed, missing, tied):
    neighbours, generator = scene(seed, tied)
    labels = torch.randint(missing, 5, (60,), generator=generator)
    targets = torch.randint(missing, 5, (40,), generator=generator)
    model = probabilities((40, 5), tied, generator)
    expect_brute_force(neighbours, labels, targets, model, "single", "accuracy")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("metric", ["accuracy", "accuracy_1"])
def test_aspects_equal_brute_force(metric, tied):
    neighbours, generator = scene(1, tied)
    labels = torch.randint(-1, 4, (60, 3), generator=generator)
    labels[:, 2] = torch.where(torch.rand(60, generator=generator) < 0.7, -1, labels[:, 2])
    targets = torch.randint(-1, 4, (40, 3), generator=generator)
    model = probabilities((40, 3, 4), tied, generator)
    expect_brute_force(neighbours, labels, targets, model, "aspects", metric)


def test_lines_that_hardly_differ():
    neighbours, generator = scene(2, tied=True)
    labels = torch.randint(0, 3, (60,), generator=generator)
    targets = torch.randint(0, 3, (40,), generator=generator)
    model = 1 / 3 + torch.rand(40, 3, generator=generator) * 1e-7
    expect_brute_force(neighbours, labels, targets, model, "single", "accuracy")
    model = torch.zeros(40, 3)
    expect_brute_force(neighbours, labels, targets, model, "single", "accuracy")


def test_neighbours_and_model_at_the_threshold():
    neighbours = Neighbours(torch.zeros(1, 8), torch.tensor([[0, 1] * 4]))
    labels, targets = LabelRows.from_lists([[0], [1]], 2), LabelRows.from_lists([[0]], 2)
    model = torch.tensor([[0.5, 0.4999999]])
    expect_brute_force(neighbours, labels, targets, model, "multi_label", "micro_f1")


def run(neighbours, labels, targets, model, **changes):
    options = {"task": "single", "ks": (1, 2), "lambdas": (0.0, 1.0), "temperatures": (1.0, 0.1)}
    options |= {"scoring": Scoring("accuracy", "max")} | changes
    return search(QueryRows(neighbours, targets, model), labels, **options)


def test_ties_prefer_the_smallest_k_then_lambda_then_temperature():
    neighbours = Neighbours(torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 1]]))
    result = run(neighbours, torch.tensor([1, 1]), torch.tensor([1]), torch.tensor([[0.4, 0.6]]))
    assert result.best == Setting(1, 0.0, 0.1)
    assert result.table["accuracy"].tolist() == [1.0] * 8
    assert result.table.dtype.names == ("k", "lambda", "temperature", "accuracy")


def test_a_k_beyond_the_neighbours_is_clipped(caplog):
    neighbours = Neighbours(torch.tensor([[0.0, 1.0]]), torch.tensor([[0, 1]]))
    with caplog.at_level(logging.WARNING):
        result = run(
            neighbours, torch.tensor([1, 1]), torch.tensor([1]), torch.tensor([[0.4, 0.6]]), ks=(2, 50)
        )
    assert set(result.table["k"].tolist()) == {2}
    assert "2 instead of 50" in caplog.text


def test_bad_input():
    neighbours = Neighbours(torch.zeros(1, 2), torch.tensor([[0, 1]]))
    data = torch.tensor([1, 1]), torch.tensor([1]), torch.tensor([[0.4, 0.6]])
    for changes in ({"ks": ()}, {"ks": (0,)}, {"lambdas": (1.5,)}):
        with pytest.raises(ValueError, match="grid"):
            run(neighbours, *data, **changes)
    with pytest.raises(UserError, match=r"micro_f1.*accuracy"):
        run(neighbours, *data, scoring=Scoring("micro_f1", "max"))
    rows = LabelRows.from_lists([[], []], 2), LabelRows.from_lists([[]], 2), torch.tensor([[0.4, 0.6]])
    with pytest.raises(ValueError, match="map has no value"):
        run(neighbours, *rows, task="multi_label", scoring=Scoring("map", "max"))
