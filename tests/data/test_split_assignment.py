from collections import Counter

import pytest

from mlcl.data.split_assignment import assign, position, train_every_class


def test_positions_are_those_of_every_machine():
    assert position("a", 0) == pytest.approx(0.3715000620)
    assert position("a", 0) != position("a", 1)


def test_shares_are_about_the_fractions():
    counts = Counter(assign(str(i), 0) for i in range(10_000))
    assert abs(counts["train"] - 8_000) < 150
    assert abs(counts["validation"] - 1_000) < 120


@pytest.mark.parametrize(
    ("fractions", "allowed"), [((1, 0, 0), {"train"}), ((0.5, 0, 0.5), {"train", "test"})]
)
def test_a_fraction_of_zero_gets_nothing(fractions, allowed):
    assert {assign(str(i), 0, fractions) for i in range(500)} == allowed


def test_every_class_gets_a_training_row_and_no_more_rows_move():
    keys = [f"k{i}" for i in range(6)]
    splits = ["train", "test", "test", "validation", "test", "train"]
    classes = [[0], [1], [1], [2], [0, 2], []]
    moved = list(splits)
    train_every_class(moved, [classes], keys, seed=0)
    trained = {c for split, row in zip(moved, classes, strict=True) if split == "train" for c in row}
    assert trained == {0, 1, 2}
    assert sum(a != b for a, b in zip(splits, moved, strict=True)) == 2
    again = list(splits)
    train_every_class(again, [classes], keys, seed=0)
    assert again == moved
