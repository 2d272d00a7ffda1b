import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mlcl.data import Dataset, prepare
from mlcl.data.format import LabelSpace
from mlcl.data.validation import check
from mlcl.data.writer import NewDataset, write_dataset
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, put

SPACES = {
    "topic": LabelSpace(kind="single", classes=("sport", "news")),
    "detail": LabelSpace(kind="single", classes=("ball", "run", "vote")),
    "tags": LabelSpace(kind="multi_label", classes=("a", "b", "c", "d")),
    "ratings": LabelSpace(kind="aspects", aspects=("value", "room"), scale=(1, 1.5, 2)),
    "path": LabelSpace(kind="hierarchy", levels=("topic", "detail")),
}
SPLITS = ("train", "train", "train", "validation", "test")


def text_batch(rows: int = 40) -> dict[str, list[Any]]:
    """Returns a batch whose labels repeat every few rows, so that each label occurs in train."""
    numbers = range(rows)
    return {
        "id": [f"r{i}" for i in numbers],
        "text": [f"Row {i} says word{i % 7}." for i in numbers],
        "split": [SPLITS[i % 5] for i in numbers],
        "topic": [None if i == 1 else i % 3 // 2 for i in numbers],
        "detail": [i % 3 for i in numbers],
        "tags": [None if i == 2 else sorted({i % 4, i % 3}) for i in numbers],
        "ratings": [None if i == 0 else [(0, 1, 1.5, 2)[i % 4], 1] for i in numbers],
    }


@pytest.fixture
def batch():
    return text_batch()


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a data set from a batch without any check, as a user's own tool might.

    Unless the batch gives them, the split of a row is train, and ids and texts are made from row numbers.
    """

    def write(batch: dict[str, list[Any]] | None, folder: str = "set", **options: Any) -> Path:
        rows = range(len(next(iter(batch.values()))) if batch else 0)
        columns: dict[str, list[Any]] = {"id": [f"r{i}" for i in rows], "split": ["train"] * len(rows)}
        if options.get("modality", "text") == "text":
            columns["text"] = [f"text {i}" for i in rows]
        settings = {"name": "toy", "modality": "text", "label_spaces": SPACES, "origin": "made"}
        settings |= {"licence": "none", "batches": [columns | (batch or {})]}
        shard_rows = options.pop("shard_rows", 65_536)
        write_dataset(tmp_path / folder, NewDataset(**(settings | options)), shard_rows)
        return tmp_path / folder

    return write


@pytest.fixture
def text_set(write, batch):
    return write(batch, shard_rows=10)


def png(seed: int, size: tuple[int, int] = (12, 8)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()


@pytest.fixture
def image_batch():
    return {
        "id": [f"i{i}" for i in range(20)],
        "image": [png(i) for i in range(20)],
        "split": [SPLITS[i % 5] for i in range(20)],
        "kind": [i % 2 for i in range(20)],
    }


@pytest.fixture
def write_images(write):
    spaces = {"kind": LabelSpace(kind="single", classes=("x", "y"))}

    def write_images(batch: dict[str, list[Any]], folder: str = "images", **options: Any) -> Path:
        return write(batch, folder, modality="image", label_spaces=spaces, **options)

    return write_images


ANY = {"check_counts": False}


class DistributionTestCase(SourceTestCase):
    """A suite for a source whose distribution has published counts.

    `counts` is the text of the error about the counts of `files`. `added` names a file that is not read but
    changes the state, such as an image in a folder of images.
    """

    options = ANY
    counts = ""
    added = ""

    def test_counts_are_compared_with_the_published_ones(self, settings, tmp_path):
        with pytest.raises(UserError, match="not the published counts; check_counts=false") as error:
            prepare(self.name, tmp_path / "home", {**settings, "check_counts": True})
        assert self.counts
        assert self.counts in error.value.line()

    def test_its_state_changes_with_a_file_that_is_added(self, source, given, settings):
        initial_state = source.state(source.options(**settings))
        (given / (self.added or "other")).write_bytes(b"another")
        assert (source.state(source.options(**settings)) != initial_state) == (self.added != "")


@pytest.fixture
def read(source, given, settings, tmp_path):
    """Returns a function that writes changed files into the distribution and opens the checked data set."""

    def read(files=(), seed=0, **options):
        put(given, dict(files))
        folder = tmp_path / f"made-{len(list(tmp_path.iterdir()))}"
        source.write(folder, source.options(**{**settings, **options}), seed)
        check(folder)
        return Dataset.open(folder)

    return read


def rows_of(data, *spaces):
    """Returns a mapping from id to split, text (None for images) and labels (names or ratings) of a row."""
    rows = {}
    spaces = spaces or [
        name for name, label_space in data.info.label_spaces.items() if label_space.kind != "hierarchy"
    ]
    for name in data.info.rows:
        split = data.split(name)
        texts = split.texts() if data.info.modality == "text" else [None] * len(split)
        labels = [named(split.labels(space), data.info.space(space)) for space in spaces]
        rows |= {row[0]: (name, *row[1:]) for row in zip(split.ids, texts, *labels, strict=True)}
    return rows


def named(labels, space):
    if space.kind == "aspects":
        return labels.tolist()
    if hasattr(labels, "lists"):
        return [[space.classes[label] for label in row] for row in labels.lists()]
    return [space.classes[label] for label in labels.tolist()]


def splits_of(data):
    """Returns a mapping from id to split."""
    return {row_id: row[0] for row_id, row in rows_of(data).items()}


def images_of(data):
    """Returns a mapping from id to encoded image."""
    splits = [data.split(name) for name in data.info.rows]
    return {
        row_id: image for split in splits for row_id, image in zip(split.ids, split.images(), strict=True)
    }
