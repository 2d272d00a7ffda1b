"""Tables in memory become files of the home, by their content."""

from types import SimpleNamespace

import pandas as pd
import pytest

from mlcl.api.user_frames import data_paths
from mlcl.errors import UserError

COLUMNS = {"text": ["one", "two", "three"], "topics": [["a"], ["a", "b"], []]}


def read(data, home):
    (file,) = data_paths(data, home)
    return file, pd.read_parquet(file)


def test_equal_tables_are_one_file(tmp_path):
    file, frame = read(COLUMNS, tmp_path)
    assert [list(its) for its in frame["topics"]] == COLUMNS["topics"]
    again, _ = read(pd.DataFrame(COLUMNS, index=[7, 8, 9]), tmp_path)
    other, _ = read({**COLUMNS, "text": ["one", "two", "four"]}, tmp_path)
    assert again == file != other
    assert sorted(tmp_path.glob("frames/*")) == sorted([file, other])


def test_sets_and_tuples_are_lists(tmp_path):
    _, frame = read({"text": ["x", "y"], "topics": [{"b", "a"}, ("c",)]}, tmp_path)
    assert [list(its) for its in frame["topics"]] == [["a", "b"], ["c"]]


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
    assert [list(its) for its in frame["tags"]] == [["x", "y"], [], ["y"]]


def test_paths_stay(tmp_path):
    assert data_paths("a.csv", tmp_path) == data_paths([tmp_path.__class__("a.csv")], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (3, "no data; found: int"),
        ({"text": []}, "no rows"),
        ({"text": ["a", "b"], "label": ["x"]}, "columns of different lengths"),
        ({"text": ["a", object()]}, "cannot be a Parquet table"),
    ],
)
def test_no_table_is_refused_and_nothing_is_written(tmp_path, data, problem):
    with pytest.raises(UserError, match=problem):
        data_paths(data, tmp_path)
    assert not list(tmp_path.iterdir())
