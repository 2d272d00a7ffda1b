"""Tests of held-out classes: which rows leave the splits, which classes are drawn, and what is refused."""

import json

import numpy as np
import pytest
import torch
from builders import dataset, rare_class_dataset, text_dataset, tree_dataset

from mlcl.data import Dataset, LabelSpace, hold_out
from mlcl.data.format import HeldOut
from mlcl.data.modifications import SHOTS
from mlcl.data.validation_rows import redraw_validation
from mlcl.errors import UserError
from mlcl.labels import LabelRows

ROWS = 600
TWENTY = tuple(map(str, range(20)))
SPACES = {
    "coarse": LabelSpace(kind="single", classes=tuple("wxyz")),
    "fine": LabelSpace(kind="single", classes=TWENTY),
    "tags": LabelSpace(kind="multi_label", classes=TWENTY),
    "path": LabelSpace(kind="hierarchy", levels=("coarse", "fine")),
    "flat": LabelSpace(kind="hierarchy", levels=("fine",)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Returns a data set of fine classes 0 to 19, five in each coarse class; class 19 has 4 training rows."""
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 19, ROWS)
    fine[:4] = 19
    split = np.where(np.arange(ROWS) < 400, "train", np.where(np.arange(ROWS) < 500, "validation", "test"))
    rows = {
        "text": [f"text {i}" for i in range(ROWS)],
        "split": split.tolist(),
        "coarse": (fine // 5).tolist(),
        "fine": fine.tolist(),
        "tags": [sorted({int(c), int(rng.integers(0, 20))}) for c in fine],
    }
    folder = tmp_path_factory.mktemp("held") / "data"
    return Dataset.open(dataset(folder, "held", SPACES, rows, shard_rows=70))


def has(split, held_out):
    labels = split.labels(held_out.labels)
    lists = labels.lists() if isinstance(labels, LabelRows) else [[c] for c in labels.tolist()]
    return [bool({*row} & {*held_out.classes}) for row in lists]


@pytest.mark.parametrize("labels", ["fine", "tags", "path", "path.fine", "flat"])
def test_rows_with_a_held_out_class_leave_every_split_and_no_others(data, labels):
    reduced_data = hold_out(data, labels, 0.2, seed=0)
    held_out = reduced_data.info.held_out
    assert held_out.labels == ("fine" if labels in ("path", "flat") else labels)
    for name in ("train", "validation", "test"):
        split, seen_split, unseen_split = (
            data.split(name),
            reduced_data.split(name),
            reduced_data.unseen(name),
        )
        assert sorted([*seen_split.ids, *unseen_split.ids]) == sorted(split.ids)
        assert has(split, held_out).count(True) == len(unseen_split)
        assert not any(has(seen_split, held_out))
        assert all(has(unseen_split, held_out))
        assert seen_split.texts() == [f"text {id}" for id in seen_split.ids]
        assert seen_split.rows.tolist() == sorted(seen_split.rows.tolist())
        assert torch.equal(split.rows, torch.cat([seen_split.rows, unseen_split.rows]).sort().values)


def test_the_share_is_of_the_classes_with_enough_training_rows(data):
    for share, count in ((0.2, 4), (0.5, 10), (0.1, 2)):
        held_out = hold_out(data, "fine", share, seed=0).info.held_out
        assert len(held_out.classes) == count
        assert list(held_out.classes) == sorted({*held_out.classes})
    for seed in range(20):
        assert 19 not in hold_out(data, "fine", 0.5, seed).info.held_out.classes
    assert int((data.split("train").labels("fine") == 19).sum()) < SHOTS


@pytest.mark.parametrize(("share", "each"), [(0.2, [1, 1, 1, 1]), (0.9, [4, 4, 4, 3])])
def test_every_parent_in_a_hierarchy_keeps_a_class(data, share, each):
    for seed in range(5):
        classes = np.array(hold_out(data, "path", share, seed).info.held_out.classes)
        assert np.bincount(classes // 5).tolist() == each


def test_a_multi_label_hierarchy_keeps_its_parents_too(tmp_path):
    held_out = hold_out(Dataset.open(tree_dataset(tmp_path / "tree")), "path", 0.5, seed=0).info.held_out
    assert held_out.labels == "tags"
    assert [tag // 2 for tag in held_out.classes] == [0, 1, 2]


def test_the_seed_decides_and_the_fingerprint_tells(data):
    first, repeat, other = (hold_out(data, "fine", 0.2, seed) for seed in (0, 0, 1))
    assert first.info.held_out == repeat.info.held_out != other.info.held_out
    assert first.info.fingerprint == repeat.info.fingerprint
    assert len({variant.info.fingerprint for variant in (data, first, other)}) == 3
    splits = [variant.split("train") for variant in (data, first, other)]
    assert len({split.fingerprint for split in [*splits, first.unseen("train"), other.unseen("train")]}) == 5
    assert data.info.held_out is data.unseen("train") is None
    without_rare = data.without(HeldOut("fine", (19,)))  # no row of validation has class 19
    assert (without_rare.unseen("validation"), len(without_rare.split("validation"))) == (None, 100)


@pytest.mark.parametrize(
    ("labels", "share", "key", "text"),
    [
        ("fin", 0.2, "labels", "did you mean fine"),
        ("fine", 0.02, "share", "0 classes of fine would be held out"),
        ("coarse", 0.25, "share", "1 classes of coarse would be held out and 3 stay"),
        ("coarse", 0.8, "share", "3 classes of coarse would be held out and 1 stay"),
        ("path", 0.05, "share", "0 classes of path would be held out"),
    ],
)
def test_what_cannot_be_held_out(data, labels, share, key, text):
    with pytest.raises(UserError, match=text) as error:
        hold_out(data, labels, share, 0)
    assert error.value.key == f"data.hold_out.{key}"


def test_aspects_and_files_hold_nothing_out_and_a_split_needs_a_row_that_stays(tmp_path):
    folder = text_dataset(tmp_path / "tiny")
    data = Dataset.open(folder)
    with pytest.raises(UserError, match="aspects have no classes"):
        hold_out(data, "ratings", 0.2, 0)
    with pytest.raises(UserError, match="every row has a held-out class"):
        data.without(HeldOut("detail", (0, 1, 2, 3))).split("validation")
    tree = json.loads((folder / "dataset.json").read_text())
    tree["_held_out"] = {"labels": "detail", "classes": [0]}
    (folder / "dataset.json").write_text(json.dumps(tree))
    with pytest.raises(UserError, match="unknown key"):
        Dataset.open(folder)


def test_classes_and_test_rows_are_the_same_for_all_draws_of_validation(tmp_path):
    stored_data = Dataset.open(rare_class_dataset(tmp_path / "data"))
    redrawn_sets = [redraw_validation(stored_data, seed) for seed in range(8)]
    assert any(int((redrawn.split("train").labels("detail") == 4).sum()) < SHOTS for redrawn in redrawn_sets)
    for seed in range(3):
        expected = hold_out(stored_data, "detail", 0.5, seed)
        results = [hold_out(redrawn, "detail", 0.5, seed, stored_data) for redrawn in redrawn_sets]
        assert all(result.info.held_out == expected.info.held_out for result in results)
        assert all(result.split("test").ids == expected.split("test").ids for result in results)


def test_labels_alone_are_numbered_anew():
    rows = LabelRows.from_lists([[0, 3, 5], [], [5], [1, 2]], 6).only(torch.tensor([1, 3, 5]))
    assert rows.lists() == [[1, 2], [], [2], [0]]
    assert rows.width == 3
