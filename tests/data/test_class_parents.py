"""Tests of the parent of each class: which rows determine it, and which rows contradict it."""

import pytest
import torch

from mlcl.data import Dataset, LabelSpace, add_label_noise, class_parents, hold_out
from mlcl.data.validation import check
from mlcl.errors import UserError

KINDS = ("pan", "cup", "rake", "hoe", "other")
SPACES = {
    "dept": LabelSpace(kind="single", classes=("kitchen", "garden")),
    "kind": LabelSpace(kind="single", classes=KINDS),
    "path": LabelSpace(kind="hierarchy", levels=("dept", "kind")),
}
LEVELS = ("dept", "group", "kind")
THREE = SPACES | {
    "group": LabelSpace(kind="single", classes=("x", "other")),
    "path": LabelSpace(kind="hierarchy", levels=LEVELS),
}


@pytest.fixture
def written(write):
    """Returns a function that writes rows of a split, a dept and a kind, as class numbers; None is blank."""

    def written(rows, spaces=SPACES, names=("dept", "kind"), **options):
        columns = map(list, zip(*rows, strict=True))
        return write(dict(zip(("split", *names), columns, strict=True)), label_spaces=spaces, **options)

    return written


def sound(split="train", repeats=2):
    return [(split, kind // 2, kind) for kind in range(4)] * repeats


BLANK = [("train", None, kind) for kind in range(4)]


WITHOUT = "rows have a class of kind without one of dept"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (sound() + BLANK, f"dept: 4 {WITHOUT}; the others tell its parent"),
        (BLANK + sound(), f"dept: 4 {WITHOUT}; the others tell its parent"),
        ([*sound(), ("train", None, 4)], f"dept: 1 {WITHOUT}; no row tells that of 1 of the classes"),
    ],
    ids=["at the end", "at the start", "of a class by itself"],
)
def test_a_blank_parent_hides_no_known_one_and_is_noted(written, rows, said):
    folder = written(rows)
    assert class_parents(Dataset.open(folder), "kind")["dept"].tolist() == [0, 0, 1, 1, -1]
    assert said in check(folder).warnings


def test_validation_tells_what_training_does_not_and_test_never_does(written):
    train = sound()[:3]
    data = Dataset.open(written([*train, ("validation", 1, 3), ("test", 1, 4)]))
    assert class_parents(data, "kind")["dept"].tolist() == [0, 0, 1, 1, -1]
    only_test = Dataset.open(written(sound("test"), folder="test"))
    assert class_parents(only_test, "kind")["dept"].tolist() == [-1] * 5


def test_a_level_between_tells_a_parent_too(written):
    rows = [("train", 0, 0, 0), ("train", None, 0, 1), ("train", 1, None, 2), ("train", 1, 1, None)]
    data = Dataset.open(written(rows, THREE, LEVELS))
    parents = class_parents(data, "kind")
    assert list(parents) == ["dept", "group"]
    assert parents["dept"].tolist() == [0, 0, 1, -1, -1]
    assert parents["group"].tolist() == [0, 0, -1, -1, -1]
    assert class_parents(data, "group")["dept"].tolist() == [0, 1]
    assert class_parents(data, "dept") == {}


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_class_with_two_parents_is_refused_at_the_first_row_that_disagrees(written, split):
    other_rows = [("train", 0, 4), ("train", None, 4), ("train", 0, 4)]
    other_rows += [(split, 1, 4), (split, 1, 4), (split, 0, 4)]
    folder = written(sound() + other_rows)
    with pytest.raises(UserError, match=r"other has a second parent in dept at row \d+, id r11") as error:
        check(folder)
    assert error.value.key == "kind"
    assert f"/{split}-0" in error.value.file
    assert error.value.found == ["kitchen (3 rows)", "garden (2 rows)"]
    assert "whole paths: kitchen/other and garden/other" in error.value.allowed
    if split == "test":
        assert class_parents(Dataset.open(folder), "kind")["dept"][4] == 0
        return
    for operation in (lambda data: class_parents(data, "kind"), lambda data: hold_out(data, "path", 0.5, 0)):
        with pytest.raises(UserError, match="second parent"):
            operation(Dataset.open(folder))


def test_a_middle_class_with_two_parents_is_refused_where_each_finest_class_has_one(written):
    rows = [("train", 0, 1, 0), ("train", 1, 1, 1), ("train", 0, 0, 2)]
    with pytest.raises(UserError, match="other has a second parent in dept"):
        check(written(rows, THREE, LEVELS))


def test_noise_draws_the_parents_that_all_rows_tell_and_leaves_other_rows_alone(written):
    rows = [*sound(repeats=40), *BLANK * 10, *[("train", 1, None)] * 5, ("validation", 1, 4)]
    train = Dataset.open(written(rows)).split("train")
    noisy = add_label_noise(train, "kind", 0.8, seed=0)
    kind_N, dept_N = noisy.labels("kind"), noisy.labels("dept")
    drawn_N = kind_N != train.labels("kind")
    assert drawn_N.sum() > 50
    assert torch.equal(dept_N[drawn_N], torch.tensor([0, 0, 1, 1, 1])[kind_N[drawn_N]])
    assert torch.equal(dept_N[~drawn_N], train.labels("dept")[~drawn_N])


def test_held_out_classes_are_drawn_below_their_parents_in_spite_of_blanks(written):
    rows = [*sound(repeats=6), *BLANK, *sound("validation"), *sound("test")]
    for seed in range(5):
        held_out = hold_out(Dataset.open(written(rows, folder=f"s{seed}")), "path", 0.5, seed).info.held_out
        assert sorted(kind // 2 for kind in held_out.classes) == [0, 1]
