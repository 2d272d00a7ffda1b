"""The test suite of metrics. The author of a metric writes it once more, as a plain loop:

    from mlcl.testing.metrics import MetricTestCase

    class TestOneError(MetricTestCase):
        names = ("one_error",)

        def loop(self, name, probabilities, targets, threshold):
            wrong = [max(range(len(p)), key=p.__getitem__) not in y for p, y in zip(probabilities, targets)]
            return sum(wrong) / len(wrong)

If no installed package has the metric, `modules` names its module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from mlcl.evaluation import (
    METRICS,
    Decision,
    EmbeddingMetric,
    LabelFacts,
    Neighbours,
    QueryRows,
    Scoring,
    Targets,
    Task,
    blend,
    evaluate,
    knn_probabilities,
    metric_names,
    retrieve,
    search,
)
from mlcl.evaluation.jackknife import blocks_of_groups, values_without_blocks
from mlcl.labels import LabelRows
from mlcl.testing import PluginTestCase, register_plugins

ROWS, LABELS, CLASSES, ASPECTS = 40, 16, 6, ("taste", "look", "feel")
KS, LAMBDAS, TEMPERATURES = (1, 3), (0.0, 0.25, 0.5, 1.0), (0.1, 1.0)
NUMBERS = np.arange(LABELS)
FACTS = LabelFacts(band=NUMBERS % 3, path=np.stack([NUMBERS // 4, NUMBERS // 2, NUMBERS], axis=1))
"""The frequency band of each label, and its path in a hierarchy. Neighbouring labels are in different bands
and may have one parent. For classes, the bands and paths of the first labels are used."""


class MetricTestCase(PluginTestCase):
    """The tests of metrics of predictions. A subclass sets `names` and defines `loop`."""

    registry = METRICS
    names: ClassVar[Sequence[str]] = ()

    def loop(
        self, name: str, probabilities: list[list[float]], targets: list[Any], threshold: float
    ) -> float:
        """Returns the metric's value, computed by a slow reference implementation.

        Args:
            name: The name of the metric.
            probabilities: The probabilities of each row, one for each class or label.
            targets: The class of each row, or its set of labels; no row is without a known target. `FACTS`
                has the bands and paths of the labels.
            threshold: A label is predicted if its probability is at least this.
        """
        raise NotImplementedError("a subclass says what the metric is")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises tests by the name of the metric and the tasks that it supports."""
        with register_plugins(METRICS, self.modules):
            declared_names = self.read_list("names")
            names = [name for name in declared_names if not isinstance(METRICS[name], EmbeddingMetric)]
            pairs = [(name, task) for name in names for task in METRICS[name].tasks]
        if not pairs:
            problem = f"{type(self).__name__}.names: none is a metric of predictions"
            raise pytest.Collector.CollectError(f"{problem}; found: {', '.join(declared_names)}")
        if "task" in metafunc.fixturenames:
            metafunc.parametrize(("name", "task"), pairs, ids=[f"{name}-{task}" for name, task in pairs])

    @pytest.mark.parametrize("tied", [False, True])
    @pytest.mark.parametrize("seed", range(3))
    def test_the_value_equals_the_loop(self, name: str, task: Task, seed: int, tied: bool) -> None:
        """Tests the value against `loop`, with missing targets, and labels that never or always occur."""
        p, targets = scene(task, seed, tied)
        for threshold in (0.5, 0.25):
            values = _evaluate_metric(name, task, p, targets, threshold)
            assert values[name] == pytest.approx(
                self._loop_value(name, task, p, targets, threshold), rel=1e-12, nan_ok=True
            )

    def test_a_metric_that_ranks_reads_no_threshold(self, name: str, task: Task) -> None:
        """Tests that the value of a ranking metric does not depend on the threshold."""
        if task == "multi_label" and METRICS[name].ranks:
            p, targets = scene(task, 0, tied=False)
            values = [_evaluate_metric(name, task, p, targets, t)[name] for t in (0.1, 0.9)]
            assert values[0] == pytest.approx(values[1], nan_ok=True)

    def test_the_order_of_rows_is_irrelevant(self, name: str, task: Task) -> None:
        """Tests that a permutation of the rows does not change the value."""
        p, targets = scene(task, 0, tied=False)
        order = torch.randperm(len(p), generator=torch.Generator().manual_seed(1))
        shuffled_values = _evaluate_metric(name, task, p[order], targets[order])
        values = _evaluate_metric(name, task, p, targets)
        assert shuffled_values[name] == pytest.approx(values[name], rel=1e-12, nan_ok=True)

    def test_it_is_among_the_metrics_of_its_group_with_the_same_value(self, name: str, task: Task) -> None:
        """Tests that the metric is evaluated with its group, with one value per aspect if it declares so."""
        p, targets = scene(task, 0, tied=False)
        group = METRICS[name].group
        names = metric_names(task, _aspect_names(task), p.shape[1], [group])
        assert (name in metric_names(task, _aspect_names(task), p.shape[1])) == (not group)
        values = evaluate(task, p, targets, aspects=_aspect_names(task), only=names, facts=_facts(task))
        without_target = f"_{ASPECTS[-1]}"
        assert tuple(values) == tuple(key for key in names if not key.endswith(without_target))
        assert _evaluate_metric(name, task, p, targets)[name] == pytest.approx(
            values[name], abs=0, nan_ok=True
        )
        if task == "aspects":
            assert (f"{name}_{ASPECTS[0]}" in values) == METRICS[name].per_aspect

    def test_a_perfect_prediction_is_not_worse_than_a_random_one(self, name: str, task: Task) -> None:
        """Tests a perfect against a random prediction, according to the metric's mode."""
        p, targets = scene(task, 0, tied=False)
        perfect = _perfect_predictions(p, targets)
        perfect_value = _evaluate_metric(name, task, perfect, targets)[name]
        random_value = _evaluate_metric(name, task, p, targets)[name]
        assert perfect_value >= random_value if METRICS[name].mode == "max" else perfect_value <= random_value

    def test_an_unknown_entry_has_no_part_in_the_value(self, name: str, task: Task) -> None:
        """Tests that an unknown label changes nothing; a metric that does not take unknown ones is NaN."""
        if task == "multi_label":
            p, targets = scene(task, 0, tied=False)
            assert isinstance(targets, LabelRows)
            rows, unknown = _mask_labels(targets)
            other_p = torch.where(unknown, 1 - p, p)
            values = [
                _evaluate_metric(name, task, probabilities, rows)[name] for probabilities in (p, other_p)
            ]
            assert values[0] == pytest.approx(values[1], rel=1e-12, nan_ok=True)
            assert METRICS[name].takes_unknown or math.isnan(values[0])

    @pytest.mark.parametrize("unknown", [False, True])
    @pytest.mark.parametrize("tied", [False, True])
    def test_without_a_block_of_rows_it_is_the_value_of_the_others(
        self, name: str, task: Task, tied: bool, unknown: bool
    ) -> None:
        """Tests jackknife values, also with unknown labels, against the value of the other rows."""
        p, targets = scene(task, 0, tied)
        if unknown and isinstance(targets, LabelRows):
            targets = _mask_labels(targets)[0]
        block_N = blocks_of_groups(np.arange(ROWS) // 3, blocks=7)
        arguments = Decision.fixed(0.5), _aspect_names(task), [name], _facts(task)
        values = values_without_blocks(task, p, targets, block_N, *arguments)[name]
        row_sets = [torch.from_numpy(np.flatnonzero(block_N != block)) for block in range(7)]
        expected = [_evaluate_metric(name, task, p[rows], targets[rows])[name] for rows in row_sets]
        assert values == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True)

    @pytest.mark.parametrize("unknown", [False, True])
    @pytest.mark.parametrize("tied", [False, True])
    def test_the_search_after_training_equals_one_setting_after_the_other(
        self, name: str, task: Task, tied: bool, unknown: bool
    ) -> None:
        """Tests `search` against the metric at every single (k, lambda, temperature), to the last bit."""
        p, targets = scene(task, 0, tied)
        train, neighbours = scene(task, 1, tied)[1], _find_neighbours(tied)
        if unknown:
            if not (METRICS[name].takes_unknown and isinstance(targets, LabelRows)):
                return
            assert isinstance(train, LabelRows)
            targets, train = _mask_labels(targets)[0], _mask_labels(train)[0]
        result = search(
            QueryRows(neighbours, targets, p, _facts(task)),
            train,
            task=task,
            ks=KS,
            lambdas=LAMBDAS,
            temperatures=TEMPERATURES,
            scoring=Scoring(name, METRICS[name].mode, aspects=_aspect_names(task)),
        )
        expected = []
        for k, lambda_, temperature in itertools.product(KS, LAMBDAS, TEMPERATURES):
            votes = knn_probabilities(neighbours, train, task, k, temperature, p.shape[-1])
            mixed = blend(votes, p, lambda_)
            value = _evaluate_metric(name, task, mixed, targets)[name]
            expected.append((k, lambda_, temperature, value))
        assert result.table.tolist() == expected

    def _loop_value(self, name: str, task: Task, p: Tensor, targets: Targets, threshold: float) -> float:
        if isinstance(targets, LabelRows):
            return self.loop(name, p.tolist(), [set(labels) for labels in targets.lists()], threshold)
        if task == "single":
            is_known = targets >= 0
            return self.loop(name, p[is_known].tolist(), targets[is_known].tolist(), threshold)
        columns = [column for column in range(len(ASPECTS)) if bool((targets[:, column] >= 0).any())]
        values = [
            self._loop_value(name, "single", p[:, column], targets[:, column], threshold)
            for column in columns
        ]
        return math.fsum(values) / len(values)


def _evaluate_metric(
    name: str, task: Task, p: Tensor, targets: Targets, threshold: float = 0.5
) -> dict[str, float]:
    decision = Decision.fixed(threshold)
    return evaluate(task, p, targets, decision, _aspect_names(task), [name], _facts(task))


def scene(task: Task, seed: int, tied: bool) -> tuple[Tensor, Targets]:
    """Returns random probabilities and targets of a task; with `tied`, probabilities are whole eighths."""
    g = torch.Generator().manual_seed(seed)
    shape = {
        "single": (ROWS, CLASSES),
        "multi_label": (ROWS, LABELS),
        "aspects": (ROWS, len(ASPECTS), CLASSES),
    }[task]
    p = torch.rand(shape, generator=g)
    p = (p * 8).round() / 8 if tied else p
    if task == "multi_label":
        y = torch.rand(shape, generator=g) < 0.2
        y[:, 0], y[:, 1], y[:3] = False, True, False
        return p, LabelRows.from_dense(y)
    targets = torch.randint(-1, CLASSES - 1, shape[:-1], generator=g)
    if task == "aspects":
        targets[:, -1] = -1
    return p, targets


def _mask_labels(rows: LabelRows) -> tuple[LabelRows, Tensor]:
    """Makes a fifth of the absent labels unknown; returns the rows, and a mask (N, L) of these entries."""
    absent = rows.dense() == 0
    unknown = absent & (torch.rand(absent.shape, generator=torch.Generator().manual_seed(1)) < 0.2)
    return replace(rows, unknown=LabelRows.from_dense(unknown)), unknown


def _perfect_predictions(p: Tensor, targets: Targets) -> Tensor:
    if isinstance(targets, LabelRows):
        return targets.dense(torch.float32)
    return torch.nn.functional.one_hot(targets.clamp(min=0), p.shape[-1]).float()


def _find_neighbours(tied: bool) -> Neighbours:
    g = torch.Generator().manual_seed(2)
    train, queries = (torch.randn(ROWS, 3, generator=g) for _ in range(2))
    return retrieve(train.round(), queries.round(), max(KS)) if tied else retrieve(train, queries, max(KS))


def _aspect_names(task: Task) -> Sequence[str] | None:
    return ASPECTS if task == "aspects" else None


def _facts(task: Task) -> LabelFacts:
    if task == "multi_label":
        return FACTS
    assert FACTS.band is not None
    assert FACTS.path is not None
    return LabelFacts(FACTS.band[:CLASSES], FACTS.path[:CLASSES])
