from collections import Counter

import pytest

from mlcl.data.split_assignment import (
    assign,
    draw,
    halves,
    position,
    shares_note,
    train_every_class,
    twin_form,
    with_eval_as_test,
    words_of,
)


def test_positions_are_those_of_every_machine():
    assert position("a", 0) == pytest.approx(0.3715000620)
    assert position("a", 0) != position("a", 1)


def test_shares_are_about_the_fractions():
    counts = Counter(assign(str(i), 0) for i in range(10_000))
    assert abs(counts["train"] - 8_000) < 150
    assert abs(counts["validation"] - 1_000) < 120
    for fractions, expected in (((1, 0, 0), {"train"}), ((0.5, 0, 0.5), {"train", "test"})):
        assert {assign(str(i), 0, fractions) for i in range(500)} == expected


def test_every_class_gets_a_training_row_and_no_more_rows_move():
    keys = [f"k{i}" for i in range(6)]
    splits = ["train", "test", "test", "validation", "test", "train"]
    classes = [[0], [1], [1], [2], [0, 2], []]
    new_splits = list(splits)
    train_every_class(new_splits, [classes], keys, seed=0)
    trained_classes = {
        c for split, row in zip(new_splits, classes, strict=True) if split == "train" for c in row
    }
    assert trained_classes == {0, 1, 2}
    assert sum(a != b for a, b in zip(splits, new_splits, strict=True)) == 2
    repeat_splits = list(splits)
    train_every_class(repeat_splits, [classes], keys, seed=0)
    assert repeat_splits == new_splits


def test_shares_far_from_the_wanted_and_splits_without_rows_are_said_with_the_reason():
    splits = ["train"] * 827 + ["validation"] * 88 + ["test"] * 85
    assert shares_note(splits, (0.8, 0.1, 0.1), "groups are large") == [
        "the splits have 82.7 / 8.8 / 8.5 % of the rows where 80 / 10 / 10 were wanted: groups are large"
    ]
    assert shares_note(splits, (0.82, 0.09, 0.09), "") == []
    assert shares_note(["train"] * 100, (0.99, 0.01, 0), "")
    assert not shares_note(["train"] * 100, (1, 0, 0), "")


def test_twins_are_equal_but_for_digits_and_sides_and_copies_have_the_same_words():
    assert words_of("It's  GOOD,\nreally!") == words_of("it s good really") == "it s good really"
    assert words_of("!?") == "!?"
    assert twin_form("Pain in RIGHT hand, 12 days") == twin_form("pain in left hand: 3 days")
    assert twin_form("copyright 3") != twin_form("copyleft 3")
    assert twin_form("initial 3") != twin_form("sequela 3")


@pytest.mark.parametrize(
    ("found", "eval_is"),
    [({"train": "train", "eval": "validation"}, "validation"),
     ({"train": "train", "x_dev": "validation", "EvalSet": "validation"}, "test"),
     ({"dev": "validation", "evaluation": "validation", "test": "test"}, "validation"),
     ({"retrieval_dev": "validation", "eval": "validation"}, "test"),
     ({"dev": "validation", "eval_test": None}, None)],
)  # fmt: skip
def test_eval_is_test_only_where_validation_has_another_name_and_test_has_none(found, eval_is):
    eval_name = next(name for name in reversed(found) if name.lower().startswith("eval"))
    assert with_eval_as_test(found) == {**found, eval_name: eval_is}


def test_draw_is_of_exact_sizes_and_a_growing_later_split_moves_no_earlier_one():
    splits = list(halves([f"k{i}" for i in range(101)], 3).values())
    assert (splits.count("validation"), splits.count("test")) == (50, 51)
    keys = [f"k{i}" for i in range(100)]
    assignment = draw(keys, 0, {"test": 10, "train": 30})
    larger_assignment = draw(reversed(keys), 0, {"test": 10, "train": 60, "validation": 5})
    assert [list(assignment.values()).count(split) for split in ("test", "train")] == [10, 30]
    assert assignment.items() <= larger_assignment.items()
    assert draw(keys, 1, {"test": 10, "train": 30}) != assignment
    assert len(draw(keys, 0, {"test": 1, "train": 1_000})) == 100
