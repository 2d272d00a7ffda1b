"""Tests of the code that all adapters use: label numbers, sampler labels, empty batches and imports."""

import doctest
import subprocess
import sys

import numpy as np
import pytest
import torch

from mlcl.integrations import empty_batches, label_numbers
from mlcl.integrations.empty_batches import encode_rows
from mlcl.integrations.label_numbers import LabelNumbers, sampler_labels
from mlcl.losses import build_loss


def test_label_lists_of_any_kind_become_multi_hot_rows():
    numbers = LabelNumbers(classes=["a", "b", 7])
    rows = [["a"], ("b", "a"), {7}, [], frozenset({"b"}), ["b", "b"]]
    assert numbers(rows).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert numbers([]).shape == (0, 3)
    ids = LabelNumbers(classes=range(4))
    assert ids([np.array([3, 0]), torch.tensor([1])]).int().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
    assert build_loss("mulsupcon")(torch.randn(6, 2), numbers(rows)).isfinite()


def test_single_labels_and_paths_become_numbers():
    assert LabelNumbers(classes=["a", "b"])(["b", "a", None]).tolist() == [1, 0, -1]
    paths = LabelNumbers(levels=[["x", "y"], ["m", "n"]])([["y", "n"], ("x", None), (None, None)])
    assert paths.tolist() == [[1, 1], [0, -1], [-1, -1]]
    assert LabelNumbers(levels=[["x"], ["y"]])([]).shape == (0, 2)


@pytest.mark.parametrize("rows", [[3, 0, -1], [[1, 0], [0, 1]], [[0, 2, -1]]])
def test_numbers_stay_as_they_are(rows):
    assert LabelNumbers()(rows).tolist() == rows


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"classes": ["a"], "levels": [["a"]]}, [], "classes and levels; found: both; allowed: one of them"),
        ({"classes": "ab"}, [], "classes must be a list of labels, in a fixed order; found: 'ab'"),
        ({"classes": 5}, [], "classes must be a list of labels, in a fixed order; found: 5"),
        ({"classes": []}, [], "classes must be distinct labels, at least one; found:"),
        ({"classes": ["a", "a"]}, [], "classes must be distinct labels"),
        ({"levels": [["a"], []]}, [], "level 1 must be distinct labels"),
        ({"classes": ["a"]}, [["a"], ["A"]], "unknown label in row 1; found: 'A'; allowed: a"),
        ({"classes": ["a"]}, [[["a"]]], r"label list of row 0; found: \[\['a'\]\]"),
        ({"classes": range(30)}, [[30]], r"found: 30; allowed: 0, 1, .*, 9, \.\.\."),
        ({"classes": range(3)}, [[0, 1, 0]], r"label list of row 0; found: \[0, 1, 0\], a multi-hot row"),
        ({"classes": ["a"]}, [["a"], "a"], "labels of several kinds; found: lists and single labels"),
        ({"levels": [["a"], ["b"]]}, [["a"]], r"path of row 0; found: \['a'\]; allowed: 2 classes"),
        ({"levels": [["a"]]}, ["a"], "path of row 0; found: 'a'; allowed: 1 classes"),
        ({}, [[1], [1, 2]], r"rows of numbers of one length; found: \[\[1\], \[1, 2\]\]; allowed otherwise"),
        ({}, ["a"], "labels must be numbers"),
    ],
)
def test_mistakes_are_one_line(options, rows, message):
    with pytest.raises(ValueError, match=message) as excinfo:
        LabelNumbers(**options)(rows)
    assert "\n" not in str(excinfo.value)


def test_labels_of_a_column_are_told_apart_for_the_sampler():
    assert sampler_labels([[1, 0], [1, 1]], "multi_hot") == [[0], [0, 1]]
    assert sampler_labels(torch.tensor([[1, 0]]), "multi_hot") == [[0]]
    assert sampler_labels([["a", "b"]], "paths") == [("a", "b")]
    assert sampler_labels([["a"], []], "lists") == [["a"], []]
    assert sampler_labels(["a", 3], "lists") == ["a", 3]
    with pytest.raises(ValueError, match="labels; found: 'tags'; allowed: lists, paths, multi_hot"):
        sampler_labels([], "tags")
    with pytest.raises(
        ValueError, match=r"label list of row 1; found: \[0, 1, 0\], a multi-hot row; allowed: a list"
    ):
        sampler_labels([[0], [0, 1, 0]], "lists")
    with pytest.raises(ValueError, match=r"label list of row 0; found: \[\['a', 'b'\]\]"):
        sampler_labels([[["a", "b"]]], "lists")


def test_a_batch_without_rows_has_zero_gradients():
    encoder = torch.nn.Linear(3, 2)
    inputs = {"input_ids": torch.zeros(0, 3), "attention_mask": torch.zeros(0, 3).long(), "task": "query"}
    batches = []

    def encode(batch):
        batches.append(batch)
        return encoder(batch["input_ids"] * batch["attention_mask"])

    encode_rows(encode, inputs).sum().backward()
    assert batches[0]["attention_mask"].tolist() == [[1, 1, 1]]
    assert batches[0]["task"] == "query"
    assert not encoder.weight.grad.any()


@pytest.mark.parametrize("classes", [{"a", "b"}, frozenset({"a", "b"})])
def test_classes_have_an_order(classes):
    for options in ({"classes": classes}, {"levels": [["x"], classes]}):
        with pytest.raises(ValueError, match="must be a list of labels, in a fixed order; found:"):
            LabelNumbers(**options)


def test_texts_without_tokens_are_rows_if_offsets_count_them():
    bag = torch.nn.EmbeddingBag(5, 3)
    offsets = torch.zeros(2, dtype=torch.int64)

    def encode(batch):
        return bag(batch["input"], batch["offsets"])

    empty_batch = {"input": offsets[:0], "offsets": offsets}
    assert encode_rows(encode, empty_batch).tolist() == [[0.0] * 3] * 2
    assert encode_rows(encode, empty_batch | {"offsets": offsets[:0]}).shape == (0, 3)


@pytest.mark.parametrize("module", [label_numbers, empty_batches])
def test_the_examples_of_the_docstrings_run(module):
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0


def test_an_adapter_imports_nothing_of_the_service_and_no_other_framework():
    for name in ("lightning", "sentence_transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    code = (
        "import importlib, sys\n"
        "parts = ('api', 'cli', 'config', 'data', 'evaluation', 'models', 'service', 'training')\n"
        "foreign = {'transformers', 'lightning', 'sentence_transformers', *(f'mlcl.{p}' for p in parts)}\n"
        "for name in ('label_numbers', 'lightning', 'transformers', 'sentence_transformers'):\n"
        "    importlib.import_module(f'mlcl.integrations.{name}')\n"
        "    foreign -= {name}\n"
        "    if name == 'lightning':\n"
        "        foreign -= {'transformers'}  # torchmetrics imports it\n"
        "    assert not foreign & set(sys.modules), (name, foreign & set(sys.modules))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
