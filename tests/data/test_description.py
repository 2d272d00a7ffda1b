import json
from dataclasses import asdict

import pytest

from mlcl.data import Dataset
from mlcl.data.description import describe, in_words


def test_label_spaces_of_the_training_split(text_set):
    description = describe(text_set)
    train = Dataset.open(text_set).split("train")
    tags, rows = description.labels["tags"], train.labels("tags")
    assert tags.classes == 4
    assert tags.cardinality == pytest.approx(len(rows.columns) / 24)
    assert tags.density == pytest.approx(tags.cardinality / 4)
    counts = [rows.columns.tolist().count(c) for c in range(4)]
    assert tags.imbalance == pytest.approx(max(counts) / min(counts))
    assert list(tags.most_frequent.values()) == sorted(counts, reverse=True)
    assert list(tags.least_frequent.values()) == sorted(counts)
    assert tags.missing == 1
    assert description.labels["topic"].missing == 1
    assert description.labels["ratings.value"].missing == train.labels("ratings.value").eq(-1).sum()
    assert set(description.labels) == {"topic", "detail", "tags", "ratings.value", "ratings.room"}
    assert description.hierarchies == {"path": ["topic", "detail"]}
    assert description.rows == {"train": 24, "validation": 8, "test": 8}


def test_in_words(text_set, write_images, image_batch):
    lines = in_words(describe(text_set))
    assert lines[0] == "toy: texts, train 24, validation 8, test 8"
    assert "words a text: 4 in the median, 4 to 4 in 95 %, 4 at most" in lines
    (tags,) = (line for line in lines if line.startswith("tags: 4 labels; "))
    assert tags.endswith("training rows without a label: 1")
    assert "path: the levels topic > detail" in lines
    images = describe(write_images(image_batch))
    assert any("width in pixels: 12 in the median" in line for line in in_words(images))
    assert (images.content["width_q50"], images.content["height_q50"]) == (12, 8)
    assert json.loads(json.dumps(asdict(images)))["content"] == images.content


def test_held_out_labels_are_not_read(text_set, monkeypatch):
    names_read = []
    split = Dataset.split
    monkeypatch.setattr(Dataset, "split", lambda self, name: names_read.append(name) or split(self, name))
    describe(text_set)
    assert set(names_read) == {"train"}
