"""Tests of metrics without each block of rows; `MetricTestCase` compares each with the rows that are left."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mlcl.evaluation import evaluate
from mlcl.evaluation.jackknife import blocks_of_groups, values_without_blocks
from mlcl.labels import LabelRows
from mlcl.testing.metrics import ASPECTS, scene


def test_an_aspect_has_its_own_values():
    p, targets = scene("aspects", 0, tied=False)
    block_N = blocks_of_groups(np.arange(len(p)), blocks=5)
    options = {"aspects": ASPECTS, "only": ["accuracy_look"]}
    values = values_without_blocks("aspects", p, targets, block_N, **options)["accuracy_look"]
    row_sets = [torch.from_numpy(np.flatnonzero(block_N != block)) for block in range(5)]
    expected = [evaluate("aspects", p[rows], targets[rows], **options)["accuracy_look"] for rows in row_sets]
    assert values == pytest.approx(expected, rel=1e-12)


def test_a_label_of_one_block_alone_cannot_be_scored_without_it():
    p, rows = torch.tensor([[0.9], [0.4], [0.6], [0.1]]), LabelRows.from_lists([[0], [0], [], []], 1)
    block_N = np.array([0, 0, 1, 2])
    values = values_without_blocks(
        "multi_label", p, rows, block_N, only=["map", "macro_auc", "labels_scored"]
    )
    assert values["map"] == pytest.approx([math.nan, 1, (1 + 2 / 3) / 2], nan_ok=True)
    assert values["macro_auc"] == pytest.approx([math.nan, 1, 0.5], nan_ok=True)
    assert values["labels_scored"].tolist() == [0, 1, 1]


def test_without_the_block_of_all_known_targets_there_is_no_value():
    p, targets = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), torch.tensor([0, 1, -1])
    values = values_without_blocks("single", p, targets, np.array([0, 0, 1]), only=["calibration_error"])
    full_value = evaluate("single", p, targets, only=["calibration_error"])["calibration_error"]
    assert values["calibration_error"] == pytest.approx([math.nan, full_value], nan_ok=True)


def test_without_the_block_of_all_known_labels_no_count_has_a_value():
    p, rows = torch.tensor([[0.9, 0.1], [0.8, 0.2]]), LabelRows.from_lists([[0], []], 2)
    partial_rows = replace(rows, unknown=LabelRows.from_lists([[], [0, 1]], 2))
    names = ["micro_f1", "macro_f1", "labels_scored"]
    values = values_without_blocks("multi_label", p, partial_rows, np.array([0, 1]), only=names)
    assert [math.isnan(values[name][0]) for name in names] == [True, True, True]
    assert values["micro_f1"][1] == 1


@pytest.mark.parametrize("predicted", [[0, 1, 1, 0], [0, 0, 0, 2], [1, 1, 0, 0]])
def test_without_all_rows_of_a_class_every_model_is_averaged_over_the_other_classes(predicted):
    p, targets = torch.nn.functional.one_hot(torch.tensor(predicted), 3).float(), torch.tensor([0, 0, 1, 1])
    f1 = values_without_blocks("single", p, targets, np.array([0, 0, 1, 1]), only=["macro_f1"])["macro_f1"]
    n_right = [predicted[2:].count(1), predicted[:2].count(0)]  # without block 0, only class 1 has rows
    assert f1 == pytest.approx([2 * n / (n + 2) for n in n_right])


def test_probabilities_of_float16_keep_the_numbers_of_many_rows():
    """The counts exceed 2,048, above which float16 does not have every whole number."""
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(3000, 3, generator=generator).half()
    rows = LabelRows.from_dense(torch.rand(3000, 3, generator=generator) < 0.4)
    block_N, options = np.arange(3000) // 1500, {"only": ["subset_accuracy"]}
    values = values_without_blocks("multi_label", p, rows, block_N, **options)["subset_accuracy"]
    indices = torch.arange(1500, 3000), torch.arange(1500)
    expected = [
        evaluate("multi_label", p[index], rows.take(index), **options)["subset_accuracy"] for index in indices
    ]
    assert values.tolist() == expected


def test_blocks_are_whole_groups_of_about_equal_size():
    group_N = np.random.default_rng(0).integers(0, 300, size=2000)
    block_N = blocks_of_groups(group_N)
    sizes = np.bincount(block_N)
    assert len(sizes) == 100
    assert sizes.max() - sizes.min() <= np.bincount(group_N).max()
    assert all(len(set(block_N[group_N == group])) == 1 for group in set(group_N))
    other_blocks = blocks_of_groups(group_N, seed=1)
    assert block_N.tolist() == blocks_of_groups(group_N).tolist() != other_blocks.tolist()


def test_there_are_no_more_blocks_than_groups():
    assert sorted(blocks_of_groups(np.array([5, 5, 9, 2]))) in ([0, 0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 2])
