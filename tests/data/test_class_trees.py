"""Tests of hierarchies over multi-label spaces, in which a row may have several paths."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mlcl.data import Dataset, LabelSpace, add_label_noise, class_tree, prepare, reached_by, subset
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.labels import LabelRows

PARENTS = (0, 0, 1, 1)
SPACES = {
    "group": LabelSpace(kind="multi_label", classes=("x", "y")),
    "tag": LabelSpace(kind="multi_label", classes=("a", "b", "c", "d")),
    "path": LabelSpace(kind="hierarchy", levels=("group", "tag"), parents=(PARENTS,)),
}
TAGS = [[0], [0, 3], [2, 3], [], [1], [2], [0, 1, 2], [3]]
SPLITS = ["train", "train", "train", "train", "train", "validation", "train", "test"]


@pytest.fixture
def batch():
    return {
        "id": [f"r{i}" for i in range(len(TAGS))],
        "text": [f"text {i}" for i in range(len(TAGS))],
        "split": list(SPLITS),
        "tag": list(TAGS),
        "group": [sorted({PARENTS[tag] for tag in row}) for row in TAGS],
    }


@pytest.fixture
def write_tree(write):
    return lambda batch, **spaces: write(batch, label_spaces=SPACES | spaces)


def test_a_row_has_the_nodes_of_all_levels_and_the_fingerprint_those_above(write_tree, batch):
    data = Dataset.open(write_tree(batch))
    labels = data.split("train").take(torch.tensor([5, 1, 3])).labels("path")
    assert labels.levels == (2, 4)
    assert labels.lists() == [[0, 1, 2, 3, 4], [0, 1, 2, 5], []]
    assert data.info.space("path").classes == ("a", "b", "c", "d")
    assert data.split("train").labels("path.tag").lists()[1] == [0, 3]
    path = SPACES["path"].model_copy(update={"parents": ((0, 1, 1, 1),)})
    other_info = data.info.model_copy(update={"label_spaces": SPACES | {"path": path}})
    assert other_info.fingerprint != data.info.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parents": ()}, "a multi-label hierarchy has them for each level but the first"),
        ({"parents": (PARENTS, PARENTS)}, "for each level but the first"),
        ({"parents": ((0, 0, 1),)}, "each class of tag needs one of group"),
        ({"parents": ((0, 0, 1, 2),)}, "each class of tag needs one of group"),
        ({"levels": ("one", "tag")}, "all single or all multi-label"),
        ({"levels": ("group", "path")}, "not a single or multi-label space"),
    ],
)
def test_parents_must_fit_the_levels(write_tree, batch, changes, message):
    batch["one"] = [0] * len(TAGS)
    path = SPACES["path"].model_copy(update=changes)
    with pytest.raises(UserError, match=message):
        write_tree(batch, path=path, one=LabelSpace(kind="single", classes=("z",)))


def test_a_path_may_end_above_the_finest_level(write_tree, batch):
    batch["group"][0] = [0, 1]
    batch["group"][3] = [1]
    assert check(write_tree(batch)).warnings[0] == "group: 2 rows have a class of it without one of tag below"


def test_the_first_row_without_a_parent_is_named(write_tree, batch):
    batch["group"][2] = [0]
    batch["group"][6] = []
    line = "key tag: label without its parent at row 2, id r2; found: c; allowed: with y in group"
    with pytest.raises(UserError, match=f"train-00000.parquet, {line}"):
        check(write_tree(batch))


def test_noise_reaches_the_coarser_levels(write_tree, batch):
    train = Dataset.open(write_tree(batch)).split("train")
    assert reached_by(train.info, "tag") == {"tag", "path", "group", "path.group", "path.tag"}
    noisy = add_label_noise(train, "tag", 0.9, seed=0)
    tags, groups = noisy.labels("tag").lists(), noisy.labels("group").lists()
    assert tags != train.labels("tag").lists()
    assert groups == [sorted({PARENTS[tag] for tag in row}) for row in tags]
    assert noisy.labels("path").lists() == [
        [*group, *(2 + tag for tag in tag_row)] for group, tag_row in zip(groups, tags, strict=True)
    ]


def test_noise_keeps_coarse_labels_where_a_path_ends_early(write):
    spaces = SPACES | {"top": LabelSpace(kind="multi_label", classes=("s", "t"))}
    spaces["path"] = LabelSpace(kind="hierarchy", levels=("top", "group", "tag"), parents=((0, 1), PARENTS))
    rows = {"top": [[1], [0, 1], [0]], "group": [[1], [0], [0]], "tag": [[], [0], [0]]}
    noisy = add_label_noise(Dataset.open(write(rows, label_spaces=spaces)).split("train"), "tag", 1, seed=1)
    tags, groups, tops = (noisy.labels(name).lists() for name in ("tag", "group", "top"))
    assert tags == [[], [1], [3]]
    assert groups == [[1], [0], [1]]
    assert tops == [[1], [0, 1], [1]]


def test_a_row_is_under_each_of_its_paths(write_tree, batch):
    train = Dataset.open(write_tree(batch)).split("train")
    top, middle, finest = class_tree(train, "path")
    # Class -1, of the row without labels, is a class like the others and comes first.
    assert top.sizes.tolist() == [3]
    assert middle.sizes.tolist() == [1, 2, 2]
    member_lists = [sorted(members.tolist()) for members in np.split(finest.members, finest.offsets[1:-1])]
    assert member_lists == [[3], [0, 1, 5], [4, 5], [2, 5], [1, 2]]


def test_a_subset_counts_the_finest_labels(write_tree, batch):
    train = Dataset.open(write_tree(batch)).split("train")
    path_subset, tag_subset = (subset(train, name, n=3, seed=1) for name in ("path", "tag"))
    assert path_subset.ids == tag_subset.ids
    assert isinstance(path_subset.labels("path"), LabelRows)


LABELS = {
    "group": {"kind": "multi_label", "column": "group"},
    "tag": {"kind": "multi_label", "column": "tag"},
    "path": {"kind": "hierarchy", "levels": ["group", "tag"]},
}


@pytest.fixture
def opened(tmp_path, batch):
    """Returns a function that prepares a table of label names and opens it as a data set."""

    def opened(**path):
        names = {name: SPACES[name].classes for name in ("group", "tag")}
        table = batch | {name: [[names[name][i] for i in row] for row in batch[name]] for name in names}
        pq.write_table(pa.table(table), tmp_path / "table.parquet")
        options = {"path": str(tmp_path / "table.parquet"), "text": "text", "id": "id", "split": "split"}
        options["labels"] = LABELS | {"path": LABELS["path"] | path}
        return Dataset.open(prepare("parquet", tmp_path / "home", options))

    return opened


def test_rows_of_a_table_tell_the_parents_and_a_file_those_that_they_do_not(opened, batch, tmp_path):
    assert opened().info.label_spaces["path"] == SPACES["path"]
    batch["tag"][0] = batch["tag"][4] = batch["tag"][6] = [0, 3]
    batch["group"][0] = batch["group"][4] = batch["group"][6] = [0, 1]
    with pytest.raises(UserError, match=r"table.parquet, key labels.path.parents: a of tag has no parent in"):
        opened()
    tree = {"a": {"group": "x"}, "c": {"group": "y"}, "d": {"group": "y"}}
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(tree))
    info = opened(parents=str(file)).info
    assert info.space("tag").classes == ("a", "c", "d")
    assert info.label_spaces["path"].parents == ((0, 1, 1),)


def below(groups):
    """Returns the content of a file of parents that puts each tag below a group."""
    return {tag: {"group": group} for tag, group in zip("abcd", groups, strict=True)}


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "key data.options.labels.path.parents: no such file"), ("[", "tree.json: not JSON that says"),
     ('{"a": "x"}', "tree.json: not JSON that says"),
     ('{"a": {"group": "x"}}', "has no such class, or not its class at each level; found: b"),
     ('{"a": {"tag": "x"}}', "has no such class, or not its class at each level; found: group"),
     (below("xxzy"), "c of tag has no parent in group; found: z; allowed: x, y"),
     (below("yxyy"), "table.parquet, key tag: label without its parent at row 0; found: a")],
)  # fmt: skip
def test_a_wrong_file_of_parents_is_named(opened, tmp_path, content, message):
    if content is not None:
        (tmp_path / "tree.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError) as error:
        opened(parents=str(tmp_path / "tree.json"))
    assert message in error.value.line()


def test_a_class_with_two_parents_is_named(tmp_path):
    """The class is of a middle level, and each finest class has one path in the file."""
    columns = {"top": [["t"], ["u"]], "group": [["x"], ["x"]], "tag": [["a"], ["b"]]}
    table = pa.table({"text": ["one", "two"], "split": ["train"] * 2, **columns})
    pq.write_table(table, tmp_path / "deep.parquet")
    file = tmp_path / "tree.json"
    file.write_text(json.dumps({"a": {"group": "x", "top": "t"}, "b": {"group": "x", "top": "u"}}))
    labels = LABELS | {"top": {"kind": "multi_label", "column": "top"}}
    labels["path"] = {"kind": "hierarchy", "levels": ["top", "group", "tag"], "parents": str(file)}
    options = {"path": str(tmp_path / "deep.parquet"), "text": "text", "split": "split", "labels": labels}
    with pytest.raises(UserError, match="x of group has two parents in top; found: t, u"):
        prepare("parquet", tmp_path / "home", options)
