"""Tests of multi-label rows with unknown classes: their column, and the operations that keep them."""

import json

import numpy as np
import pytest
import torch

from mlcl.data import Dataset, LabelSpace, add_label_noise, hold_out, subset
from mlcl.data.description import describe, in_words
from mlcl.data.format import DatasetInfo, HeldOut
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.labels import LabelRows

ROWS = 120
CLASSES = tuple("abcdef")
SPACE = LabelSpace(kind="multi_label", classes=CLASSES, unknown=True)
PLAIN = LabelSpace(kind="multi_label", classes=CLASSES)


def known_and_unknown(rows=ROWS):
    rng = np.random.default_rng(0)
    entries = rng.choice([0, 1, -1], (rows, len(CLASSES)), p=[0.5, 0.3, 0.2])
    return [[np.flatnonzero(row == value).tolist() for row in entries] for value in (1, -1)]


@pytest.fixture
def findings():
    positives, unknown = known_and_unknown()
    return {
        "split": [("train", "train", "validation", "test")[i % 4] for i in range(ROWS)],
        "findings": positives,
        "findings.unknown": unknown,
    }


@pytest.fixture
def place(write, findings):
    return write(findings, label_spaces={"findings": SPACE}, shard_rows=25)


def read_validation(place):
    Dataset.open(place).split("validation").labels("findings")


def assert_rows_are_those_written(split, findings):
    rows = [int(row_id[1:]) for row_id in split.ids]
    assert split.labels("findings").lists() == [findings["findings"][i] for i in rows]
    assert split.labels("findings").unknown.lists() == [findings["findings.unknown"][i] for i in rows]


def test_splits_and_their_parts_have_the_unknown_classes_that_were_written(place, findings):
    data = Dataset.open(place, verify=True)
    train = data.split("train")
    parts = [
        *map(data.split, ("train", "validation", "test")),
        train.take(torch.tensor([5, 3, 3, 50])),
        subset(train, "findings", per_class=3),
        subset(train, "findings", n=20).take(torch.arange(7)),
    ]
    for part in parts:
        assert_rows_are_those_written(part, findings)


def test_held_out_classes_carry_unknown_entries_along(place, findings):
    data = Dataset.open(place).without(HeldOut("findings", (1, 4)))
    seen_split, unseen_split = data.split("train"), data.unseen("train")
    for split in (seen_split, unseen_split):
        assert_rows_are_those_written(split, findings)
    assert all(not {1, 4} & set(row) for row in seen_split.labels("findings").lists())
    # A row is not held out because of an unknown entry.
    assert any({1, 4} & set(row) for row in seen_split.labels("findings").unknown.lists())
    labels = unseen_split.labels("findings")
    expected = [[(1, 4).index(c) for c in row if c in (1, 4)] for row in labels.unknown.lists()]
    assert labels.only(torch.tensor([1, 4])).unknown.lists() == expected
    held_labels = hold_out(Dataset.open(place), "findings", 0.4, 0).split("train").labels("findings")
    assert held_labels.unknown is not None


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_noise_keeps_unknown_entries_unknown(place, rate):
    train = Dataset.open(place).split("train")
    noisy_split = add_label_noise(train, "findings", rate, seed=1)
    assert noisy_split.labels("findings").unknown.lists() == train.labels("findings").unknown.lists()
    rows = noisy_split.labels("findings")
    assert rows.lists() != train.labels("findings").lists()
    assert not np.intersect1d(rows.cells().numpy(), rows.unknown.cells().numpy()).size
    part, unknown = noisy_split.take(torch.tensor([4, 1])), train.labels("findings").unknown.lists()
    assert part.labels("findings").unknown.lists() == [unknown[4], unknown[1]]


def test_a_space_without_unknown_has_none_and_dataset_json_does_not_name_it(write, findings):
    place = write(findings, label_spaces={"findings": PLAIN})
    assert Dataset.open(place).split("train").labels("findings").unknown is None
    assert "unknown" not in json.loads((place / "dataset.json").read_text())["label_spaces"]["findings"]


def info(**spaces):
    shards = [{"file": "train-00000.parquet", "rows": 1, "sha256": "0" * 64}]
    fields = {"name": "n", "modality": "text", "rows": {"train": 1}, "source": "s", "licence": "l"}
    return DatasetInfo(**fields, label_spaces=spaces, shards=shards)


def test_the_fingerprint_is_that_of_before_unless_a_space_has_unknown():
    space = {"kind": "multi_label", "classes": ["a", "b"]}
    assert info(tags=space).fingerprint == info(tags={**space, "unknown": False}).fingerprint
    assert info(tags=space).fingerprint == "9518196175b2fb84"
    assert info(tags={**space, "unknown": True}).fingerprint != "9518196175b2fb84"


def test_unknown_is_of_multi_label_spaces_alone_and_of_no_level():
    with pytest.raises(ValueError, match="unknown is of multi_label spaces alone, this one is single"):
        LabelSpace(kind="single", classes=("a",), unknown=True)
    coarse = LabelSpace(kind="multi_label", classes=("x",))
    path = LabelSpace(kind="hierarchy", levels=("coarse", "fine"), parents=((0,) * 6,))
    with pytest.raises(ValueError, match="level fine of path has unknown entries, which no level may have"):
        info(coarse=coarse, fine=SPACE, path=path)


@pytest.mark.parametrize("read", [check, read_validation])
@pytest.mark.parametrize(
    ("row", "known", "unknown", "problem", "found"),
    [
        (6, [], [6], "class index outside the classes at row 1", [6]),
        (10, [0, 3], [1, 3], "class both known and unknown at row 2", "d"),
    ],
)
def test_wrong_unknown_classes_are_refused(write, findings, read, row, known, unknown, problem, found):
    findings["findings"][row], findings["findings.unknown"][row] = known, unknown
    with pytest.raises(UserError, match=problem) as error:
        read(write(findings, label_spaces={"findings": SPACE}))
    assert (error.value.key, error.value.found) == ("findings.unknown", found)
    assert error.value.file.endswith("validation-00000.parquet")


def test_a_missing_column_of_unknown_classes_is_named(write, findings):
    del findings["findings.unknown"]
    with pytest.raises(UserError, match=r"column is missing") as error:
        write(findings, label_spaces={"findings": SPACE})
    assert error.value.key == "findings.unknown"


def test_the_check_counts_unknown_entries(place, findings, write):
    count = sum(map(len, findings["findings.unknown"]))
    share = f"{count / (ROWS * 6):.1%}"
    assert f"findings: {count} of 720 entries are unknown ({share})" in check(place).warnings
    findings["findings.unknown"] = [[] for _ in range(ROWS)]
    messages = check(write(findings, "told", label_spaces={"findings": SPACE})).warnings
    assert not any("unknown" in line for line in messages)


def test_the_description_counts_unknown_entries_of_the_training_rows(place, findings):
    description = describe(place)
    summary = description.labels["findings"]
    rows = zip(findings["findings.unknown"], findings["split"], strict=True)
    count = sum(len(row) for row, split in rows if split == "train")
    assert (summary.unknown, summary.unknown_share) == (count, count / (60 * 6))
    expected_line = f"unknown entries: {count} ({summary.unknown_share:.1%})"
    assert any(expected_line in line for line in in_words(description))


def test_label_rows_carry_unknown_entries_through_every_operation():
    positives, unknown = known_and_unknown(9)
    rows = LabelRows.from_lists(positives, 6)
    partial_rows = LabelRows(rows.offsets, rows.columns, 6, unknown=LabelRows.from_lists(unknown, 6))
    assert LabelRows.cat([partial_rows, partial_rows]).unknown.lists() == unknown * 2
    assert partial_rows.to("meta").unknown.device.type == "meta"
    assert partial_rows.known().tolist() == [[label not in row for label in range(6)] for row in unknown]
    assert rows.known() is None
    assert partial_rows.without_unknown().known() is None
    known_rows = LabelRows(rows.offsets, rows.columns, 6, unknown=LabelRows.from_lists([[]] * 9, 6))
    assert known_rows.known() is None
