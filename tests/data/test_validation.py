import json
from dataclasses import asdict
from unittest.mock import ANY

import pyarrow.parquet as pq
import pytest

from mlcl.data import dataset
from mlcl.data.validation import check
from mlcl.errors import UserError

BLANK = "topic: 1 rows have a class of detail without one of topic; the others tell its parent"
"""The note on row r1 of the toy set."""


def test_a_good_set_passes_with_its_counts(text_set):
    report = check(text_set)
    assert report.rows == {"train": 24, "validation": 8, "test": 8}
    assert (report.name, report.shards) == ("toy", 5)
    assert report.warnings == (
        BLANK,
        "ratings.room: every row with a label has 1",
        "topic: rows without a label are 4.2 % of train",
        "tags: rows without a label are 4.2 % of train",
        "ratings.value: rows without a label are 25 % of train, 25 % of validation, 25 % of test",
        "ratings.room: rows without a label are 4.2 % of train",
    )
    assert json.loads(json.dumps(asdict(report)))["fingerprint"] == report.fingerprint


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("id", "r3", "id: id is also in shard 3 at row 1, id r3"), ("id", "", "id: id is empty at row 1"),
     ("text", "  ", "text: text is empty at row 1, id r8"),
     ("text", None, "text: text is empty at row 1, id r8"),
     ("topic", 2, "topic: class index outside the classes at row 1, id r8; found: 2; allowed: 0 to 1"),
     ("topic", -2, "topic: class index outside the classes at row 1, id r8; found: -2"),
     ("tags", [0, 4], "tags: class index outside the classes at row 1, id r8; found: 0, 4; allowed: 0 to 3"),
     ("tags", [-1], "tags: class index outside the classes at row 1, id r8"),
     ("ratings", [1, 1.2], "ratings: rating outside the scale at row 1, id r8; found: 1.0, 1.2"),
     ("ratings", [1, float("nan")], "ratings: rating outside the scale at row 1, id r8")],
)  # fmt: skip
def test_the_first_bad_row_is_named(write, batch, column, value, message):
    batch[column][8] = value
    with pytest.raises(UserError) as error:
        check(write(batch, shard_rows=10))
    assert error.value.file.endswith("validation-00000.parquet")
    assert f"key {message}" in error.value.line()


def test_an_unknown_split_and_wrong_counts_are_named(text_set, monkeypatch):
    monkeypatch.setattr(dataset, "sha256_of", lambda _: ANY)  # equal to every hash
    shard = text_set / "validation-00000.parquet"
    table = pq.read_table(shard)

    def resplit(name):
        column = table.column_names.index("split")
        pq.write_table(table.set_column(column, "split", [[name] + ["validation"] * 7]), shard)

    resplit("dev")
    with pytest.raises(
        UserError, match=r"unknown split at row 0, id r3; found: dev; allowed: train, validation"
    ):
        check(text_set)
    resplit("train")
    with pytest.raises(UserError, match="rows of the splits differ"):
        check(text_set)


@pytest.mark.parametrize(("column", "value", "label"), [("detail", 2, "vote"), ("tags", [3], "d")])
def test_a_label_in_the_test_split_only_is_an_error(write, batch, column, value, label):
    other_value = 0 if column == "detail" else [0]
    batch[column] = [value if i == 14 else other_value for i in range(40)]
    batch["topic"] = [0] * 40
    folder = write(batch)
    with pytest.raises(UserError, match="label in the test split only, at row 2, id r14") as error:
        check(folder)
    assert (error.value.key, error.value.found) == (column, label)
    assert error.value.file.endswith("test-00000.parquet")
    first_warning = check(folder, allow_untrained=True).warnings[0]
    assert first_warning == f"{column}: 1 classes have no training row: {label}"
    assert check(write(batch, "allowed", allow_untrained=True)).warnings


def test_a_label_in_validation_and_test_or_a_rating_in_test_only_is_a_warning(write, batch):
    batch["ratings"] = [[2, 1] if split == "test" else [1, 1] for split in batch["split"]]
    assert check(write(batch)).warnings[:2] == (BLANK, "ratings.value: 1 classes have no training row: 2")
    batch["detail"] = [1 if split == "train" else 2 for split in batch["split"]]
    batch["topic"] = [0] * 40
    assert check(write(batch, "more")).warnings[0] == "detail: 1 classes have no training row: vote"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_split_without_rows_is_said_and_train_needs_some(write, batch, split):
    other_split = "test" if split == "train" else "train"
    batch["split"] = [other_split if name == split else name for name in batch["split"]]
    if split != "train":
        assert f"no row is for {split}" in check(write(batch)).warnings
        return
    with pytest.raises(UserError, match="no row is for training"):
        check(write(batch))
