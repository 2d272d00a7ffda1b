"""Tests that tables in memory become files of the home, named by their content."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_array

import mlcl
from mlcl.api.user_frames import data_paths, in_columns
from mlcl.data import Dataset
from mlcl.data.images import decode
from mlcl.errors import UserError

COLUMNS = {"text": ["one", "two", "three"], "topics": [["a"], ["a", "b"], []]}


def read(data, home):
    (file,) = data_paths(data, home)
    return file, pd.read_parquet(file)


def test_equal_tables_are_one_file(tmp_path):
    file, frame = read(COLUMNS, tmp_path)
    assert [list(topics) for topics in frame["topics"]] == COLUMNS["topics"]
    same_file, _ = read(pd.DataFrame(COLUMNS, index=[7, 8, 9]), tmp_path)
    other, _ = read({**COLUMNS, "text": ["one", "two", "four"]}, tmp_path)
    assert same_file == file != other
    assert sorted(tmp_path.glob("frames/*")) == sorted([file, other])


def test_a_named_index_is_a_column(tmp_path):
    names = pd.MultiIndex.from_tuples([("x", 0), ("y", 1), ("z", 2)], names=["id", None])
    _, frame = read(pd.DataFrame(COLUMNS, index=names), tmp_path)
    assert frame["id"].tolist() == ["x", "y", "z"]
    assert list(frame) == ["id", "text", "topics"]
    named_frame = pd.DataFrame(COLUMNS, index=pd.Index([3, 4, 5], name="text"))
    assert read(named_frame, tmp_path)[1]["text"].tolist() == COLUMNS["text"]


def test_sets_and_tuples_are_lists(tmp_path):
    _, frame = read({"text": ["x", "y"], "topics": [{"b", "a"}, ("c",)]}, tmp_path)
    assert [list(topics) for topics in frame["topics"]] == [["a", "b"], ["c"]]


def test_classes_of_a_hugging_face_data_set_are_named_and_its_splits_are_a_column(tmp_path):
    features = {
        "text": SimpleNamespace(),
        "topic": SimpleNamespace(names=["sport", "food"]),
        "tags": SimpleNamespace(feature=SimpleNamespace(names=["x", "y"])),
    }

    def part(topics, tags):
        frame = pd.DataFrame({"text": ["t"] * len(topics), "topic": topics, "tags": tags})
        return SimpleNamespace(features=features, to_pandas=frame.copy)

    _, frame = read({"train": part([1, -1], [[0, 1], []]), "test": part([0], [[1]])}, tmp_path)
    assert frame["split"].tolist() == ["train", "train", "test"]
    assert frame["topic"].fillna("").tolist() == ["food", "", "sport"]
    assert [list(row_tags) for row_tags in frame["tags"]] == [["x", "y"], [], ["y"]]


def test_paths_stay(tmp_path):
    assert data_paths("a.csv", tmp_path) == data_paths([tmp_path.__class__("a.csv")], tmp_path)
    assert not list(tmp_path.iterdir())


TOPICS = ["red", "green", "blue"]


def picture(row, mode="RGB", size=(10, 8)):
    pixels = np.full((*reversed(size), 3), row, dtype=np.uint8)
    pixels[..., row % 3] += 150
    return Image.fromarray(pixels).convert(mode)


PICTURES = [picture(row) for row in range(30)]
ROWS = [TOPICS[row % 3] for row in range(30)]


def prepared(tmp_path, data, **columns):
    dataset = Dataset.open(mlcl.prepare(data, home=tmp_path, **columns))
    kinds = {name: space.kind for name, space in dataset.info.label_spaces.items()}
    return dataset, kinds


@pytest.mark.parametrize(
    "data",
    [
        {"image": PICTURES, "label": ROWS},
        pd.DataFrame({"image": PICTURES, "label": ROWS}),
        [{"image": image, "label": label} for image, label in zip(PICTURES, ROWS, strict=True)],
    ],
)
def test_images_of_pillow_are_a_column(tmp_path, data):
    dataset, kinds = prepared(tmp_path, data)
    assert (dataset.info.modality, kinds) == ("image", {"label": "single"})
    train = dataset.split("train")
    for row, image in zip(train.ids, train.images(), strict=True):
        assert np.array_equal(decode(image, 8), decode(PICTURES[int(row)], 8))


def test_a_tensor_of_bfloat16_is_read_as_vectors(tmp_path):
    values = torch.tensor([[row + 0.5, 1.0] for row in range(len(ROWS))])
    dataset, _ = prepared(tmp_path, {"vector": values.bfloat16(), "label": ROWS})
    assert (dataset.info.modality, dataset.info.dim) == ("vectors", 2)


@pytest.mark.parametrize(
    "contents", [PICTURES, [f"a text {row} of {topic}" for row, topic in enumerate(ROWS)]]
)
def test_a_list_has_the_values_of_its_labels_beside_it(tmp_path, contents):
    one_hot = np.eye(3, dtype=int)[[row % 3 for row in range(30)]]
    one_hot[::2, 0] = 1
    levels = {"area": ["warm" if colour == "red" else "cold" for colour in ROWS], "topic": ROWS}
    for labels, expected in (
        (ROWS, {"label": "single"}),
        ([{colour, "red"} for colour in ROWS], {"label": "multi_label"}),
        (torch.tensor(one_hot), {"label": "multi_label"}),
        (pd.DataFrame(levels), {"area": "single", "topic": "single", "path": "hierarchy"}),
        (levels, {"area": "single", "topic": "single", "path": "hierarchy"}),
    ):
        assert prepared(tmp_path, contents, labels=labels)[1] == expected
    split = ["train"] * 20 + ["val"] * 5 + ["test"] * 5
    dataset, _ = prepared(tmp_path, contents, labels=ROWS, split=split)
    assert dataset.info.rows == {"train": 20, "validation": 5, "test": 5}


def test_images_of_every_size_and_mode_are_upright_rgb_in_one_file_by_their_pixels(tmp_path):
    modes = ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA"]
    images = [picture(row, mode, (5 + row, 9)) for row, mode in enumerate(modes)]
    images[0].getexif()[0x0112] = 6  # the orientation of a camera held sideways
    data = {"image": [*images, None], "label": [*"abcdefg", "h"]}
    file, frame = read(data, tmp_path)
    assert frame["image"].isna().sum() == 1
    for image, content in zip(images, frame["image"], strict=False):
        assert np.array_equal(decode(content, 8), decode(image, 8))
    assert Image.open(io.BytesIO(frame["image"][0])).size == (9, 5)
    copied_data = {**data, "image": [images[0], *(image.copy() for image in images[1:]), None]}
    assert read(copied_data, tmp_path)[0] == file


def test_a_path_of_an_image_is_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PICTURES[0].save("a.png")
    _, frame = read({"image": ["a.png", tmp_path / "b.png", "no.png"], "label": ["x", "y", "z"]}, tmp_path)
    assert frame["image"].tolist() == [str(tmp_path / "a.png"), str(tmp_path / "b.png"), "no.png"]


@pytest.mark.parametrize(
    ("data", "columns", "problem"),
    [
        (PICTURES, {}, "key labels: a list of images needs the values of its labels; found: none"),
        (PICTURES, {"labels": "topic"}, "a list of images needs .*; found: topic; allowed: 30 values"),
        (["a text"], {}, "a list of texts needs the values"),
        (csr_array(np.eye(3)), {"labels": "abc"}, r"key data: sparse; found: csr_array; .*toarray\(\)"),
        (PICTURES, {"labels": csr_array(np.eye(30))}, "key labels: sparse; found: csr_array"),
        (PICTURES, {"labels": ROWS[:9]}, "different lengths; found: {'image': 30, 'label': 9}"),
        (PICTURES, {"labels": {"image": ROWS}}, "another column has this name; found: image"),
        (
            [*PICTURES, "x"],
            {"labels": [*ROWS, "red"]},
            "key image: no image at row 30, beside .*; found: 'x'",
        ),
        (
            [PICTURES[0], Image.new("F", (4, 4))],
            {"labels": ["a", "b"]},
            "at row 1; found: ValueError: mode F",
        ),
        ([], {"labels": []}, "no rows"),
        ({"image": PICTURES, "label": "red"}, {}, "key data.label: no values of a column; found: 'red'"),
    ],
)
def test_lists_that_cannot_be_read_are_refused(tmp_path, data, columns, problem):
    with pytest.raises(UserError, match=problem):
        mlcl.prepare(data, home=tmp_path, **columns)
    assert not list(tmp_path.glob("data/*"))


def test_texts_may_be_empty_or_the_name_of_a_folder(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    for texts in (["", "a text"], ["docs", "a text"], ["docs", float("nan"), "a text"], ["a.csv", "a text"]):
        data, columns = in_columns(texts, {"labels": ["x"] * len(texts)})
        assert (data["text"], columns["text"]) == (texts, "text")


def test_a_list_of_files_stays_one(tmp_path):
    for files in (["a.csv", "b.csv"], [str(tmp_path)]):
        assert in_columns(files, {"labels": ["x", "y"]}) == (files, {"labels": ["x", "y"]})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (3, "no data; found: int"),
        ({"text": []}, "no rows"),
        ({"text": ["a", "b"], "label": ["x"]}, "columns of different lengths"),
        ({"text": ["a", object()]}, "cannot be a Parquet table"),
        ("", "no path; .*allowed: a file or a folder"),
    ],
)
def test_no_table_is_refused_and_nothing_is_written(tmp_path, data, problem):
    with pytest.raises(UserError, match=problem):
        data_paths(data, tmp_path)
    assert not list(tmp_path.iterdir())
