import pyarrow
import pyarrow.parquet as pq
import pytest
import torch

from mlcl.data import Dataset, prepare
from mlcl.data.row_groups import row_groups
from mlcl.data.validation import check
from mlcl.errors import UserError

TABLE = "body,topic,patient,split\n" + "".join(
    f"text number {chr(97 + row)} of them,{'xy'[row % 2]},p{row // 4},{split}\n"
    for row, split in enumerate(["train"] * 8 + ["validation"] * 8 + ["test"] * 8)
)
OPTIONS = {"text": "body", "labels": {"topic": {"kind": "single", "column": "topic"}}, "split": "split"}


@pytest.fixture
def table(tmp_path):
    """Returns a function that prepares the table with further options."""
    file = tmp_path / "notes.csv"
    file.write_text(TABLE)

    def table(**options):
        return prepare("csv", tmp_path / "home", {"path": [str(file)], **OPTIONS, **options})

    return table


def test_the_groups_of_a_table_are_kept_in_a_column(table):
    folder = table(group="patient")
    data = Dataset.open(folder)
    test = data.split("test")
    assert pq.read_table(folder / "test-00000.parquet")["row.group"].to_pylist() == ["p4"] * 4 + ["p5"] * 4
    assert test.groups() == ["p4"] * 4 + ["p5"] * 4
    assert row_groups(test).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert row_groups(test.take(torch.tensor([5, 0, 7]))).tolist() == [0, 1, 0]


def test_a_data_set_without_groups_has_neither_column_nor_entry(table, write, batch):
    folder = table()
    assert "grouped" not in (folder / "dataset.json").read_text()
    assert "row.group" not in pq.read_schema(folder / "test-00000.parquet").names
    assert row_groups(Dataset.open(folder).split("test")).tolist() == list(range(8))
    if pyarrow.__version__.startswith("25."):  # each version of pyarrow writes its number into the shards
        assert Dataset.open(write(batch)).info.fingerprint == "82e944389c2b79e1"


def test_texts_equal_but_for_numbers_or_a_side_are_a_group(write, batch):
    test_rows = [row for row, split in enumerate(batch["split"]) if split == "test"]
    texts = ["burn, left hand", "fever", "Burn right hand", "burn hand 2", "fever!", "burn hand 3", "a", "b"]
    for row, text in zip(test_rows, texts, strict=True):
        batch["text"][row] = text
    assert row_groups(Dataset.open(write(batch)).split("test")).tolist() == [0, 1, 0, 2, 1, 2, 3, 4]


def test_equal_images_and_equal_vectors_are_a_group(write, batch, write_images, image_batch):
    image_batch["image"][9] = image_batch["image"][4]
    assert row_groups(Dataset.open(write_images(image_batch)).split("test")).tolist() == [0, 0, 1, 2]
    batch["vectors"] = [[float(row), 1.0] for row in range(40)]
    batch["vectors"][9] = batch["vectors"][4]
    folder = write(batch, modality="vectors", dim=2)
    assert row_groups(Dataset.open(folder).split("test")).tolist() == [0, 0, *range(1, 7)]


def test_another_data_set_of_a_sources_name_has_not_its_groups(write, batch):
    test = Dataset.open(write(batch, name="icd10cm")).split("test")
    assert row_groups(test).max() == row_groups(Dataset.open(write(batch, "other")).split("test")).max()


def test_check_names_a_row_whose_group_is_missing(write, batch):
    batch["row.group"] = ["a"] * 19 + [None] + ["a"] * 20
    folder = write(batch, grouped=True)
    with pytest.raises(UserError, match=r"key row\.group: group is missing at row \d, id r19"):
        check(folder)
