import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mlcl.data import Dataset, LabelSpace, dataset
from mlcl.data.columns import ShardReader, equal_texts, integers, list_entries
from mlcl.data.format import DatasetInfo
from mlcl.data.validation import check
from mlcl.errors import UserError


@pytest.mark.parametrize("place", [Path, Path.as_uri])
def test_every_row_comes_back_under_its_split(text_set, batch, place):
    data = Dataset.open(place(text_set), verify=True)
    assert data.info.rows == {"train": 24, "validation": 8, "test": 8}
    for name in ("train", "validation", "test"):
        split = data.split(name)
        indices = [i for i, s in enumerate(batch["split"]) if s == name]
        assert split.ids == [batch["id"][i] for i in indices]
        assert split.texts() == [batch["text"][i] for i in indices]
        assert len(split) == len(indices)
    rows = torch.cat([data.split(name).rows for name in ("train", "validation", "test")])
    assert sorted(rows.tolist()) == list(range(40))


def test_labels_have_the_form_that_training_takes(write, batch):
    unsorted_tags = [[3, 0, 3], *batch["tags"][1:]]
    batch["tags"][0] = [0, 3]
    split = Dataset.open(write(batch | {"tags": unsorted_tags})).split("train")
    indices = [i for i, s in enumerate(batch["split"]) if s == "train"]
    topic = [-1 if batch["topic"][i] is None else batch["topic"][i] for i in indices]
    detail = [batch["detail"][i] for i in indices]
    assert split.labels("topic").tolist() == topic
    assert split.labels("topic").dtype == torch.int64
    assert split.labels("tags").lists() == [batch["tags"][i] or [] for i in indices]
    assert split.labels("tags").width == 4
    assert split.labels("path").tolist() == [list(pair) for pair in zip(topic, detail, strict=True)]
    assert split.labels("path.detail").tolist() == detail
    ratings = split.labels("ratings")
    assert ratings.dtype == torch.float32
    assert ratings.tolist() == [batch["ratings"][i] or [0, 0] for i in indices]
    index = {0: -1, 1: 0, 1.5: 1, 2: 2}
    assert split.labels("ratings.value").tolist() == [index[r] for r in ratings[:, 0].tolist()]


def test_take_composes(text_set):
    split = Dataset.open(text_set).split("train")
    selection = split.take(torch.tensor([5, 3, 3, 0])).take(torch.tensor([3, 0]))
    assert selection.ids == [split.ids[0], split.ids[5]]
    assert selection.rows.tolist() == split.rows[[0, 5]].tolist()
    assert selection.labels("tags").lists() == [split.labels("tags").lists()[i] for i in (0, 5)]
    assert selection.texts() == [split.texts()[0], split.texts()[5]]
    assert selection.fingerprint != split.fingerprint


def test_opening_and_training_read_no_test_labels(text_set, monkeypatch):
    columns_read = []
    column = ShardReader.column
    monkeypatch.setattr(
        ShardReader, "column", lambda s, n, c: columns_read.append((s.shard_file(n), c)) or column(s, n, c)
    )
    data = Dataset.open(text_set, verify=True)
    assert columns_read == []
    split = data.split("train")
    split.labels("tags"), split.labels("path"), split.texts()
    assert {c for file, c in columns_read if "/test-00000" in file} == {"split"}


def test_fingerprint_follows_content_and_label_spaces(write, batch):
    first, second = (Dataset.open(write(batch, folder)).info for folder in ("one", "same"))
    assert first.fingerprint == second.fingerprint
    other_info = DatasetInfo.model_validate(
        first.model_dump()
        | {"label_spaces": {**first.label_spaces, "more": LabelSpace(kind="single", classes=("x",))}}
    )
    assert other_info.fingerprint != first.fingerprint
    batch["text"][0] = "Another."
    assert Dataset.open(write(batch, "other")).info.fingerprint != first.fingerprint


def test_spaces_resolve(text_set):
    info = Dataset.open(text_set).info
    assert info.space("ratings.room") == LabelSpace(kind="single", classes=("1", "1.5", "2"))
    assert info.space("path.topic").classes == ("sport", "news")
    assert (info.space("path").kind, info.space("path").n_classes) == ("hierarchy", 3)
    assert info.space("path").levels == ("topic", "detail")
    assert (info.space("tags").n_classes, info.space("ratings").n_classes) == (4, 3)


@pytest.mark.parametrize("name", ["tagz", "ratings.valu", "path.tags", "topic.x"])
def test_an_unknown_space_names_the_nearest_and_the_allowed(text_set, name):
    split = Dataset.open(text_set).split("train")
    with pytest.raises(UserError, match="did you mean") as error:
        split.labels(name)
    assert "ratings.value" in error.value.allowed


def test_an_unknown_or_empty_split_says_which_there_are(write, batch):
    batch["split"] = ["train"] * 40
    data = Dataset.open(write(batch))
    for name in ("dev", "test"):
        with pytest.raises(UserError, match=r"no such split; found: .*; allowed: train"):
            data.split(name)


def test_a_place_without_a_data_set_is_named(tmp_path):
    with pytest.raises(UserError, match="not a prepared data set") as error:
        Dataset.open(tmp_path / "nowhere")
    assert error.value.file.endswith("nowhere/dataset.json")
    for place in ("nope://bucket/set", "s3://"):
        with pytest.raises(UserError):
            Dataset.open(place)


def rewritten(change):
    """Returns a function that writes a shard again with a changed table."""
    return lambda shard: pq.write_table(change(pq.read_table(shard)), shard)


DAMAGES = {
    "shard is missing": lambda shard: shard.unlink(),
    "was it truncated": lambda shard: shard.write_bytes(shard.read_bytes()[:-100]),
    "is it whole|truncated": lambda shard: shard.write_bytes(shard.read_bytes()[:900]),
    "SHA-256 differs": lambda shard: shard.write_bytes(shard.read_bytes().replace(b"says", b"sayz", 1)),
    "wrong number of rows; found: 7; allowed: 8": rewritten(lambda table: table.slice(1)),
    "key tags: column is missing": rewritten(lambda table: table.drop_columns("tags")),
    "key tags: wrong column type; found: string": rewritten(
        lambda table: table.drop_columns("tags").append_column("tags", table["text"])
    ),
}


@pytest.mark.parametrize("read", [check, partial(Dataset.open, verify=True)])
@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_shard_is_named(text_set, message, read):
    shard = text_set / "test-00000.parquet"
    DAMAGES[message](shard)
    with pytest.raises(UserError, match=message) as error:
        read(text_set)
    assert error.value.file == str(shard)


def test_shards_are_hashed_once_until_one_changes(text_set, tmp_path, monkeypatch):
    calls, original = [], dataset.sha256_of
    monkeypatch.setattr(dataset, "sha256_of", lambda stream: calls.append(1) or original(stream))
    for _ in range(2):
        Dataset.open(text_set, verify=True, notes=tmp_path / "cache")
    assert len(calls) == len(Dataset.open(text_set).info.shards)
    DAMAGES["SHA-256 differs"](text_set / "test-00000.parquet")
    with pytest.raises(UserError, match="SHA-256 differs"):
        Dataset.open(text_set, verify=True, notes=tmp_path / "cache")


@pytest.mark.parametrize(
    ("changes", "message"),
    [("", "not valid JSON"), ("{", "not valid JSON"), ("\xff", "not valid JSON"),
     ("[1]", "must be a mapping"), ({"modality": "sound"}, "key modality"),
     ({"rows": {"train": 1}}, "add up"), ({"extra": 1}, "unknown key"), ({"version": 2}, "key version"),
     ({"label_spaces": {"x": {"kind": "single", "classes": ["a", "a"]}}}, "repeat a name"),
     ({"label_spaces": {"x": {"kind": "hierarchy", "levels": ["y"]}}}, "not a single or multi-label"),
     ({"label_spaces": {"x": {"kind": "aspects", "aspects": ["y"], "scale": [0, 1]}}}, "must ascend"),
     ({"label_spaces": {"split": {"kind": "single", "classes": ["a"]}}}, "not free"),
     ({"shards": [{"file": "../x.parquet", "rows": 40, "sha256": "0" * 64}]}, "key shards.0.file")],
)  # fmt: skip
def test_a_wrong_dataset_json_is_refused(text_set, changes, message):
    file = text_set / "dataset.json"
    content = changes if isinstance(changes, str) else json.dumps(json.loads(file.read_text()) | changes)
    file.write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=message) as error:
        Dataset.open(text_set)
    assert error.value.file.endswith("dataset.json")


@pytest.mark.parametrize("chunks", [[[3, None, 7], [], [None, 1]], [[None]], [[5, 6]], []])
def test_numbers_and_texts_of_chunks_with_nulls(chunks):
    values = [value for chunk in chunks for value in chunk]
    column = pa.chunked_array(chunks, pa.int32())
    assert integers(column, -1).tolist() == [-1 if value is None else value for value in values]
    assert integers(column.slice(1), 0).tolist() == [value or 0 for value in values[1:]]
    texts = pa.chunked_array([[value and str(value) for value in chunk] for chunk in chunks], pa.string())
    for text in ("7", "absent"):
        assert equal_texts(texts, text).tolist() == [str(value) == text for value in values]
    lists = pa.chunked_array([[[1, None], None, []], [[2]]], pa.list_(pa.int32())).slice(1)
    assert [entries.tolist() for entries in list_entries(lists)] == [[0, 0, 1], [2]]
