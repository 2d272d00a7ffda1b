"""Tests of batches by label for a DataLoader."""

import collections

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from mlcl.labels import LabelRows
from mlcl.samplers import LabelBatchSampler

CLASSES = ["a"] * 40 + ["b"] * 12 + ["c"] * 12
SETS = [["x"], ["x", "y"], [], {"z"}] * 16
PATHS = [("north" if i % 2 else "south", i % 8) for i in range(64)]


def batches(labels, epochs=1, **how):
    sampler = LabelBatchSampler(labels, 16, **how)
    return [batch for _ in range(epochs) for batch in sampler]


def test_every_anchor_of_pk_has_a_positive():
    for batch in batches(CLASSES, k=4):
        counts = collections.Counter(CLASSES[row] for row in batch)
        assert len(set(batch)) == 16
        assert min(counts.values()) >= 4


def test_lists_and_sets_of_labels_are_taken():
    for batch in batches(SETS, k=2):
        label_counts = collections.Counter(label for row in batch for label in SETS[row] or [None])
        assert min(label_counts.values()) >= 2


def test_balanced_draws_each_class_equally_often():
    rows = [row for batch in batches(CLASSES, 30, order="balanced") for row in batch]
    label_counts = collections.Counter(CLASSES[row] for row in rows)
    assert max(label_counts.values()) / min(label_counts.values()) < 1.2


def test_paths_have_positives_at_each_level():
    for batch in batches(PATHS, k=2):
        for level in range(2):
            counts = collections.Counter(PATHS[row][: level + 1] for row in batch)
            assert min(counts.values()) >= 2


@pytest.mark.parametrize("order", ["random", "balanced", "pk"])
def test_slices_of_two_processes_are_the_batches_of_one(order):
    single_batches = batches(CLASSES, order=order, rank=0, world_size=1)
    rank_batches = [batches(CLASSES, order=order, rank=rank, world_size=2) for rank in range(2)]
    assert single_batches == [first + second for first, second in zip(*rank_batches, strict=True)]


def test_processes_that_start_after_the_sampler_was_built_have_their_slices(monkeypatch):
    sampler = LabelBatchSampler(CLASSES, 16)
    whole = list(sampler)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    halves = []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        sampler.set_epoch(0)
        halves.append(list(sampler))
    assert whole == [first + second for first, second in zip(*halves, strict=True)]


def test_epochs_differ_and_can_be_chosen():
    sampler = LabelBatchSampler(CLASSES, 16, seed=3)
    first, second = list(sampler), list(sampler)
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert len(sampler) == len(first) == 4


@pytest.mark.parametrize("labels", [torch.arange(64) % 4, np.arange(64) % 4, list(range(4)) * 16])
def test_tensors_and_arrays_of_classes_are_lists(labels):
    assert batches(labels) == batches([int(label) for label in labels])


def test_rows_of_zeros_and_ones_are_sets():
    label_matrix = torch.randint(2, (64, 5), generator=torch.Generator().manual_seed(0))
    assert batches(label_matrix) == batches([torch.nonzero(row).flatten().tolist() for row in label_matrix])


def test_the_order_within_a_set_does_not_matter():
    rows = [[f"t{i % 7}", f"t{i % 5}", f"u{i % 3}", f"u{i % 2}"] for i in range(64)]
    expected = batches([sorted(set(row)) for row in rows], k=2)
    assert expected == batches(list(map(set, rows)), k=2) == batches(list(map(frozenset, rows)), k=2)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series([[i % 4, 4 + i % 3] for i in range(64)]),
        LabelRows.from_lists([[i % 4, 4 + i % 3] for i in range(64)], 7),
        np.array([{i % 4, 4 + i % 3} for i in range(64)], dtype=object),
    ],
    ids=["series", "label rows", "array"],
)
def test_columns_of_lists_are_lists(labels):
    assert batches(labels, k=2) == batches([[i % 4, 4 + i % 3] for i in range(64)], k=2)


def test_missing_classes_are_one_class():
    rows = [row % 4 or None for row in range(64)]
    for nan in (float, np.float32):
        assert batches([nan("nan") if label is None else label for label in rows], k=4) == batches(rows, k=4)


def test_tensors_of_one_class_are_classes():
    assert (
        batches(list(torch.arange(64) % 4)) == batches(tuple(np.arange(64) % 4)) == batches([*range(4)] * 16)
    )
    column = pd.Series(["a", "b", "c", pd.NA] * 16, dtype="string")
    assert batches(column) == batches(["a", "b", "c", None] * 16)


def test_a_data_loader_takes_it():
    data = [(torch.tensor(i), label) for i, label in enumerate(CLASSES)]
    batch_sizes = [
        len(labels) for _, labels in DataLoader(data, batch_sampler=LabelBatchSampler(CLASSES, 16))
    ]
    assert batch_sizes == [16] * 4


@pytest.mark.parametrize(
    ("labels", "how", "problem"),
    [
        (["a", ["b"]] * 32, {}, "labels of 2 kinds: class, set"),
        ([("a",), ("a", "b")] * 32, {}, "paths of 2 lengths"),
        ([], {}, "no rows"),
        (CLASSES, {"order": "pxk"}, "order 'pxk' is none of random, balanced, pk"),
        (CLASSES, {"k": 0}, "at least 1"),
        (torch.zeros(2, 2, 2), {}, r"shape \(2, 2, 2\)"),
        (["a"] * 1, {}, "1 rows make no batch of 16"),
        (torch.tensor([[0, 2], [1, 3]] * 16), {}, "multi-hot labels .* must be 0 or 1; paths"),
        (pd.DataFrame({"a": [0, 1] * 16}), {}, "labels of a frame; allowed: one of its columns"),
        ([[0, 1, 0], [1, 0, 0]] * 16, {}, r"multi-hot row among lists of labels; allowed: a tensor or array"),
        (list(torch.eye(32)), {}, "a row of Tensor; allowed: a class, a list of labels or a tuple"),
    ],
)
def test_labels_that_make_no_batches_are_refused(labels, how, problem):
    with pytest.raises(ValueError, match=problem):
        LabelBatchSampler(labels, 16, **how)
