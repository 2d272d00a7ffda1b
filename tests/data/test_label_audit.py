import pytest

from mlcl.data import Dataset
from mlcl.data.audit import format_percent, label_notes, label_tables, looks_of
from mlcl.data.format import LabelSpace

SPLITS = ["train"] * 8 + ["validation", "test"]


@pytest.fixture
def notes(write):
    """Returns a function that writes the class indices of rows in a space `it` and returns their notes."""

    folders = []

    def notes(classes, rows, kind="single", splits=SPLITS, **other_spaces):
        spaces = {"it": LabelSpace(kind=kind, classes=classes)}
        batch = {"split": [splits[i % len(splits)] for i in range(len(rows))], "it": rows}
        spaces |= {name: space for name, (space, _) in other_spaces.items()}
        batch |= {name: values for name, (_, values) in other_spaces.items() if values is not None}
        folders.append(write(batch, f"set{len(folders)}", label_spaces=spaces))
        return label_notes(label_tables(Dataset.open(folders[-1])))

    return notes


def cycle(classes, rows):
    """Returns a class per row; each class comes in ten rows in succession, and so in every split."""
    return [i // 10 % classes for i in range(rows)]


ALIKE = "Ka\u0308se|K\u00e4se Sun|sun ice_cream|ice\u00a0_cream ice\u200bcream|icecream sun.|sun \uff33un|sun"


@pytest.mark.parametrize("pair", ALIKE.split(" "))
def test_names_that_look_alike_are_told_by_what_differs(notes, pair):
    first, second = pair.replace("_", " ").split("|")
    assert notes((first, "rain", second), cycle(3, 90)) == [f"it: {first!a} and {second!a} look alike"]


def test_of_many_names_that_look_alike_three_are_shown(notes):
    names = [f"n{i}" for i in range(5)]
    (note,) = notes((*names, *(name.upper() for name in names)), cycle(10, 100))
    assert note == "it: 'n0' and 'N0', 'n1' and 'N1', 'n2' and 'N2' look alike (and 2 more)"
    assert len(set(map(looks_of, ("C", "C++", "C#", "A+", "A-", "?", "!", "c d")))) == 8  # these differ


def test_a_name_that_goes_on_from_another_is_told_where_rows_lack_that_one(notes):
    rows = [[1] if i % 2 else [0, 1] for i in range(40)] + [[2]] * 40
    (note,) = notes(("cs", "cs.ir", "csx"), rows, "multi_label")
    explanation = "a row with cs.ir has cs only where it says so; 20 of 40 such rows do not"
    assert note == f"it: 1 classes go on from another one, such as cs.ir from cs: {explanation}"


def test_rows_with_both_levels_of_a_hierarchy_and_numbers_go_on_from_nothing(notes):
    assert not notes(("cs", "cs.ir", "x"), [[0, 1] if i % 3 else [2] for i in range(60)], "multi_label")
    assert not notes(("1", "1.5", "2"), cycle(3, 90))
    path = LabelSpace(kind="hierarchy", levels=("top", "it"))
    top = (LabelSpace(kind="single", classes=("x", "y")), cycle(2, 90))
    assert not notes(("cs", "cs.ir"), cycle(2, 90), top=top, path=(path, None))


def test_classes_of_one_split_alone_are_told_unless_they_are_chance(notes):
    rows = [1 if SPLITS[i % 10] == "test" else i % 20 // 10 * 2 for i in range(800)]
    question = "does the label tell the split?"
    assert notes(tuple("rbg"), rows) == [f"it: train and test have no class in common: {question}"]
    split_class = {"train": 0, "test": 1, "validation": 2}
    rows = [split_class[SPLITS[i % 10]] if i % 20 < 10 else 2 for i in range(800)]
    message = "there is Training_red in train alone; Test_red in test alone"
    assert notes(("Training_red", "Test_red", "blue"), rows) == [f"it: {message}: {question}"]
    assert not notes(("rare", "often"), [0 if i % 10 == 0 and i < 400 else 1 for i in range(600)])


def test_constant_and_nearly_constant_labels_are_told(notes):
    assert notes(("x", "y"), [0] * 100) == ["it: every row has x; no row has y"]
    assert notes(("x", "y"), [0] * 300 + [1, None])[0] == "it: 99.7 % of rows or more have x"
    assert notes(("x", "y"), [0] * 90 + [None] * 10)[0] == "it: every row with a label has x; no row has y"
    rows = [[0] if i % 2 else [0, 1] for i in range(50)]
    assert notes(("all", "some", "none"), rows, "multi_label") == ["it: every row has all; no row has none"]


def test_shares_without_a_label_are_told_and_whether_they_differ(notes):
    labels = [None if i % 7 == 0 else i % 2 for i in range(700)]
    assert notes(("x", "y"), labels)[0].startswith(
        "it: rows without a label are 14.3 % of train, 14.3 % of v"
    )
    assert "differ" not in notes(("x", "y"), labels)[0]
    test_labels = [None if SPLITS[i % 10] == "test" and i % 20 < 10 else i % 2 for i in range(700)]
    assert notes(("x", "y"), test_labels) == ["it: rows without a label are 50 % of test: the splits differ"]


def test_likewise_in_many_spaces_is_counted(notes):
    constant = (LabelSpace(kind="single", classes=("x",)), [0] * 30)
    messages = notes(("x",), [0] * 30, **{f"s{i}": constant for i in range(6)})
    assert (len(messages), messages[-1]) == (5, "likewise in 3 more label spaces")


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (1, "100 %"), (0.99999, "99.9 %"), (1e-6, "0.1 %"), (0.447, "44.7 %")]
)
def test_percent_rounds_to_nothing_that_is_not_so(share, text):
    assert format_percent(share) == text
