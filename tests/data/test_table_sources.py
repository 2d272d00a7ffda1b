import importlib
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from data.conftest import png, splits_of

from mlcl.data import Dataset, prepare
from mlcl.data.split_assignment import split_of_name
from mlcl.data.tables.rows import ImageFiles
from mlcl.errors import UserError
from mlcl.labels import LabelRows
from mlcl.testing.sources import SourceTestCase, Wart

ROWS = [
    ("a1", "First, with a comma", "train", "red", "x; y", "4", ""),
    ("a2", 'Two\nlines and a "quote"', "train", "blue", "", "5", "1"),
    ("a3", "Third", "val", "", "y", "", "3"),
    ("a4", "Fourth", "test", "red", "x;z;x", "1", "0"),
    ("a5", "Fifth", "train", "blue", "z", "1", "5"),
]
HEADER = ("key", "body", "part", "colour", "tags", "food", "room")
COLOUR = {"colour": {"kind": "single", "column": "colour"}}
TAGS = {"tags": {"kind": "multi_label", "column": "tags"}}
STARS = {"stars": {"kind": "aspects", "columns": ["food", "room"]}}
OPTIONS = {"text": "body", "id": "key", "split": "part", "labels": COLOUR | TAGS | STARS}


def as_csv(rows, header=HEADER):
    quote = '"{}"'.format
    lines = [",".join(quote(str(cell).replace('"', '""')) for cell in row) for row in (header, *rows)]
    return "\n".join(lines)


def as_parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(zip(HEADER, zip(*rows, strict=True), strict=True))), sink)
    return sink.getvalue().to_pybytes()


def changed(row, **cells):
    """Returns the rows, with other cells in one of them."""
    return [
        tuple(cells.get(n, c) if i == row else c for n, c in zip(HEADER, values, strict=True))
        for i, values in enumerate(ROWS)
    ]


def rows_with(column, cells, **columns):
    """Returns training rows with these cells in a column; `columns` compute others from the row number."""
    cell_functions = {"key": "k{}".format, "body": "text {}".format, "part": lambda i: "train"}
    cell_functions |= {column: cells.__getitem__, **columns}
    return [tuple(cell_functions.get(name, lambda i: "")(i) for name in HEADER) for i in range(len(cells))]


@pytest.fixture
def csv_file(tmp_path):
    def csv_file(rows=ROWS, header=HEADER, encoding="utf-8"):
        (tmp_path / "data.csv").write_bytes(as_csv(rows, header).encode(encoding))
        return tmp_path / "data.csv"

    return csv_file


@pytest.fixture
def opened(tmp_path):
    def opened(source, file, seed=0, **options):
        settings = {"path": str(file), **OPTIONS, **options}
        return Dataset.open(prepare(source, tmp_path / "home", settings, split_seed=seed))

    return opened


def names_of(data, space, split="train"):
    """Returns the label names of each row of a split."""
    classes = data.info.space(space).classes
    labels = data.split(split).labels(space)
    rows = labels.lists() if isinstance(labels, LabelRows) else labels[:, None].tolist()
    return [[classes[label] for label in row] for row in rows]


def assert_as_written(data):
    assert data.info.rows == {"train": 3, "validation": 1, "test": 1}
    assert data.info.space("colour").classes == ("blue", "red")
    assert data.info.space("tags").classes == ("x", "y", "z")
    train = data.split("train")
    assert train.ids == ["a1", "a2", "a5"]
    assert train.texts()[1] == 'Two\nlines and a "quote"'
    assert train.labels("colour").tolist() == [1, 0, 0]
    assert names_of(data, "tags") == [["x", "y"], [], ["z"]]
    assert train.labels("stars").tolist() == [[4, 0], [5, 1], [1, 5]]
    assert data.split("validation").labels("colour").tolist() == [-1]
    assert names_of(data, "tags", "test") == [["x", "z"]]


def test_csv_and_parquet_with_lists_numbers_and_nulls(tmp_path, opened, csv_file):
    for encoding in ("utf-8", "utf-8-sig"):
        assert_as_written(opened("csv", csv_file(encoding=encoding)))
    rows = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    for row in rows:
        row["tags"] = [tag.strip() for tag in row["tags"].split(";") if tag] or None
        row["food"] = float(row["food"]) if row["food"] else None
        row["room"] = int(row["room"]) if row["room"] else None
        row["colour"] = row["colour"] or None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    assert_as_written(opened("parquet", tmp_path / "data.parquet"))


def test_another_encoding_is_read_as_asked(opened, csv_file):
    rows = [tuple(cell.replace("Two", "Café") for cell in row) for row in ROWS]
    data = opened("csv", csv_file(rows, encoding="latin-1"), encoding="latin-1")
    assert data.split("train").texts()[1].startswith("Café\n")


def test_keys_of_json_that_stand_side_by_side_may_differ_in_case_alone(tmp_path, opened):
    rows = [{"body": f"text {i}", "Body": "other", "kind": "ab"[i % 2]} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = {"kind": {"kind": "single", "column": "kind"}}
    options = {"text": "body", "labels": labels, "id": None, "split": None, "fractions": [1, 0, 0]}
    assert opened("jsonl", tmp_path / "data.jsonl", **options).split("train").texts()[3] == "text 3"


@pytest.mark.parametrize("registered", [False, True])
def test_periods_of_pandas_are_read_as_they_are_written(tmp_path, opened, registered):
    if registered:
        importlib.import_module("pandas.io.parquet").PyArrowImpl()  # registers the type with Arrow
    months = pd.PeriodIndex(["2024-02", "2024-01", None], freq="M")
    frame = pd.DataFrame({"key": list("abc"), "body": list("tuv"), "part": ["train"] * 3, "colour": months})
    frame.to_parquet(tmp_path / "data.parquet")
    data = opened("parquet", tmp_path / "data.parquet", labels=COLOUR)
    assert data.info.space("colour").classes == ("2024-01", "2024-02")
    assert data.split("train").labels("colour").tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("values", "classes"),
    [([10, 9, 1], ("1", "9", "10")), ([1234567.0, 1234568.0, 1234567.0], ("1234567", "1234568"))],
)
def test_classes_of_numbers_are_ordered_as_numbers_and_keep_all_digits(tmp_path, opened, values, classes):
    table = pa.table({"key": list("abc"), "body": list("tuv"), "part": ["train"] * 3, "colour": values})
    pq.write_table(table, tmp_path / "data.parquet")
    data = opened("parquet", tmp_path / "data.parquet", labels=COLOUR)
    assert data.info.space("colour").classes == classes
    assert [float(classes[label]) for label in data.split("train").labels("colour").tolist()] == values


def test_hierarchies_go_through_single_spaces(csv_file, opened):
    labels = {
        "coarse": {"kind": "single", "column": "part"},
        "fine": COLOUR["colour"],
        "path": {"kind": "hierarchy", "levels": ["coarse", "fine"]},
    }
    data = opened("csv", csv_file(), labels=labels, split=None, fractions=[1, 0, 0])
    assert data.info.space("fine").classes == ("blue", "test/red", "train/red")
    assert data.split("train").labels("path")[:, 1].tolist() == [2, 0, -1, 1, 0]
    assert data.info.notes[0].startswith("fine: 1 name below several classes of coarse are told apart by")
    labels["fine"] = COLOUR["colour"] | {"classes": ["red", "blue"]}
    with pytest.raises(UserError, match="a class of fine has two parents in coarse at line 2"):
        opened("csv", csv_file(), labels=labels)
    labels["path"] = {"kind": "hierarchy", "levels": ["coarse", "tags"]}
    with pytest.raises(UserError, match=r"key labels.path.levels: not a single label space; found: tags"):
        opened("csv", csv_file(), labels=labels)


def test_a_space_may_be_named_nearly_as_the_levels_of_a_path(csv_file, opened):
    labels = {
        "colour": {"kind": "path", "column": "colour", "separator": ">"},
        "colour_levels": TAGS["tags"] | {"kind": "single"},
    }
    rows = rows_with("colour", ["warm > red", "cold > blue", "warm"], tags="xyz".__getitem__)
    info = opened("csv", csv_file(rows), labels=labels).info
    assert info.label_spaces["colour"].levels == ("colour_level1", "colour_level2")
    assert info.space("colour_level2").classes == ("blue", "red")
    assert info.space("colour_levels").classes == ("x", "y", "z")


# Each line has the line of a row in the file, one changed cell, other options, and the error.
BAD = """
2 | key: "" | | key key: empty at line 5
4 | key: a1 | | id of line 7 stands in line 2 too; found: a1
4 | part: dev2 | | key part: unknown split at line 7; found: dev2; allowed: train, validation
4 | room: "6" | | key room: not a rating at line 7; found: 6; allowed: 1, 2, 3, 4, 5
4 | room: good | | key room: not a rating at line 7; found: good
0 | | text: bodi | key text: no such column; did you mean body?; found: bodi; allowed: key
0 | | labels: {c: {kind: single, column: color}} | key labels.c.column: no such column
4 | colour: bleu | labels: {c: {kind: single, column: colour, classes: [red, blue]}} | \
key colour: unknown class at line 7; did you mean blue?; found: bleu; allowed: red, blue
3 | tags: w | | key tags: label in the test split only, at line 6; found: w
"""


@pytest.mark.parametrize("case", BAD.strip().splitlines())
def test_the_first_bad_value_is_named_with_file_line_and_column(tmp_path, csv_file, opened, case):
    row, cells, options, message = case.split("|")
    file = csv_file(changed(int(row), **yaml.safe_load(f"{{{cells}}}")))
    with pytest.raises(UserError) as error:
        opened("csv", file, **yaml.safe_load(f"{{{options}}}"))
    assert error.value.file == str(file)
    assert message.strip() in error.value.line()
    assert [entry for entry in (tmp_path / "home").iterdir() if entry.is_dir()] == []


def test_an_error_of_the_written_rows_names_the_file_and_the_line(tmp_path):
    for name, label in (("train", "a"), ("test", "b")):
        (tmp_path / f"{name}.csv").write_text(f"text,kind\none {name},a\nanother {name},{label}\n")
    (tmp_path / "images.csv").write_text("image,kind\n1.png,a\n2.png,b\n")
    for number, content in ((1, png(1)), (2, b"no image")):
        (tmp_path / f"{number}.png").write_bytes(content)
    for names, column, message in (
        (("train.csv", "test.csv"), "text", "label in the test split only, at line 3 of test.csv"),
        (("images.csv",), "image", "image cannot be decoded at line 3"),
    ):
        paths = [str(tmp_path / name) for name in names]
        labels = {"kind": {"kind": "single", "column": "kind"}}
        with pytest.raises(UserError, match=message) as error:
            prepare("csv", tmp_path / "home", {"path": paths, column: column, "labels": labels})
        assert error.value.file == paths[-1]


def test_an_id_with_the_words_of_a_message_is_one_line_too(tmp_path):
    rows = 'one,a,train,1\nanother,a,validation,2\nthird,b,test,"3, id 4"\n'
    (tmp_path / "t.csv").write_text(f"text,kind,split,id\n{rows}")
    labels = {"kind": {"kind": "single", "column": "kind"}}
    with pytest.raises(UserError, match="label in the test split only, at row 0, id 3, id 4") as error:
        prepare("csv", tmp_path / "home", {
            "path": [str(tmp_path / "t.csv")], "text": "text", "split": "split", "id": "id", "labels": labels,
        })  # fmt: skip
    assert error.value.file == str(tmp_path / "t.csv")


SUN = [["extra", "sun"], ["sun"], ["extra"], []]
"""The tags of the rows in the test below, which are the same in every notation."""
ALL_TRAIN = {"split": None, "fractions": [1, 0, 0]}


@pytest.mark.parametrize(
    ("cells", "said"),
    [(["sun;extra", "sun", "extra", ""], ["tags: labels are divided at ';'"]),
     (["sun | extra", "sun", "extra", ""], ["tags: labels are divided at '|'"]),
     (["sun, extra", "sun", "extra", ""], ["tags: labels are divided at ','"]),
     (["['sun', 'extra']", "['sun']", "['extra']", "[]"], []),
     (['["sun", "extra"]', '["sun"]', '["extra"]', "[]"], []),
     (["['sun' 'extra']", "['sun']", "['extra']", "[]"], []),
     (["[sun, extra]", "sun", "extra", "nan"], ['tags: "nan" is no label (1 row)']),
     (["array(['sun', 'extra'], dtype='<U5')", "array(['sun'], dtype=object)", "array(['extra'])", ""], []),
     (["('sun', 'extra')", "('sun',)", '("extra",)', "()"], []),
     (["{'sun', 'extra'}", "{'sun'}", '{"extra"}', "set()"], []),
     (["frozenset({'sun', 'extra'})", "frozenset({'sun'})", "frozenset({'extra'})", "frozenset()"], []),
     (["#sun #extra", "#sun", "#extra", ""], ["tags: labels begin with #"]),
     (["<sun><extra>", "<sun>", "<extra>", ""], ["tags: labels stand in <>"]),
     (['[{"name": "sun"}, {"id": 2, "name": "extra"}]', "[{'name': 'sun'}]", '[{"name": "extra"}]', ""], []),
     (['{"sun": 1, "extra": true}', "{'sun': 1, 'extra': 0}", "{'sun': False, 'extra': 1.0}", '{"sun": 0}'],
      ["tags: an object's names with 1, or its choices, are its labels"]),
     (['{"choices": ["sun", "extra"]}', "sun", '{"choices": ["extra"]}', ""],
      ["tags: an object's names with 1, or its choices, are its labels"])],
)  # fmt: skip
def test_notations_of_several_labels_are_recognised(csv_file, opened, cells, said):
    data = opened("csv", csv_file(rows_with("tags", cells)), labels=TAGS, **ALL_TRAIN)
    assert [sorted(row) for row in names_of(data, "tags")] == SUN
    assert list(data.info.notes) == said


@pytest.mark.parametrize(
    ("column", "cells", "problem"),
    [
        ("tags", ["ear, nose", "eye"], r"at line 2: name it; found: ear, nose; allowed: separator ','"),
        ("tags", ["a;b", "a", "b", "c, d"], r"one label or several at line 5: name it; found: c, d"),
        ("tags", ["sun rain", "sun", "rain"], r"one label or several at line 2: .*separator ' '"),
        ("tags", ["sun", "Sun"], r"a class is spelt in two ways at line 3 and line 2; found: sun, Sun"),
        ("tags", ["sun", '"sun"'], r"a class is spelt in two ways at line 3"),
        ("tags", ["sun", "['sun', "], r"begins with \[ but is not a list of labels at line 3"),
        ("tags", ["sun", "{'sun': 1, 'rain': 0.5}"], "an object without a 0 or 1 for each class at line 3"),
        ("tags", ["sun", '{"sun": null}'], "an object without a 0 or 1 for each class at line 3"),
        ("tags", ["sun", '{"sun": '], "begins with { and is no object of labels at line 3"),
        ("tags", ["nan", ""], "key tags: no row has a label"),
        ("colour", ["a;b", "c"], "one label or several at line 2"),
        ("colour", ["a, b", "a", "b"], "one label or several at line 2"),
        ("colour", ["['a', 'b']", "a"], "found: a, b; allowed: one, or kind multi_label"),
        ("colour", ["red", "Red"], "spelt in two ways"),
    ],
)
def test_notations_that_are_not_clear_are_refused_with_their_line(csv_file, opened, column, cells, problem):
    labels = {column: (COLOUR | TAGS)[column]}
    with pytest.raises(UserError, match=problem) as error:
        opened("csv", csv_file(rows_with(column, cells)), labels=labels, **ALL_TRAIN)
    assert "data.csv" in error.value.line()


def test_a_column_of_paths_without_any_is_refused(csv_file, opened):
    labels = {"colour": {"kind": "path", "column": "colour", "separator": ">"}}
    with pytest.raises(UserError, match=r"data\.csv, key colour: no row has a label"):
        opened("csv", csv_file(rows_with("colour", ["", "nan"])), labels=labels)


def test_a_list_is_no_split(tmp_path, opened):
    rows = [{"key": "a", "body": "one", "part": "train"}, {"key": "b", "body": "two", "part": ["train"]}]
    rows = [{**row, "colour": "red"} for row in rows]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"key part: unknown split at line 2; found: \['train'\]"):
        opened("jsonl", tmp_path / "data.jsonl", labels=COLOUR)


@pytest.mark.parametrize("kind", ["single", "multi_label"])
def test_a_class_named_none_is_a_label_of_its_split(csv_file, opened, kind):
    rows = rows_with("colour", ["red", "None", "None"], part=["train", "val", "test"].__getitem__)
    label = {"kind": kind, "column": "colour", "classes": ["red", "None"]}
    data = opened("csv", csv_file(rows), labels={"colour": label})
    assert [names_of(data, "colour", split) for split in ("validation", "test")] == [[["None"]], [["None"]]]


def test_what_a_user_names_is_not_guessed(csv_file, opened):
    cells = ["ear, nose", "Eye", "eye", "nan", "['x']"]

    def tags(rows, **label):
        data = opened("csv", csv_file(rows), labels={"tags": {**TAGS["tags"], **label}}, **ALL_TRAIN)
        return names_of(data, "tags"), data.info.notes

    rows = rows_with("tags", cells)
    assert tags(rows, classes=cells) == ([[cell] for cell in cells], ())
    assert tags(rows[:1], separator=",")[0] == [["ear", "nose"]]
    assert tags(rows[:1], separator=";")[0] == [["ear, nose"]]


def test_a_separator_beside_lists_of_0_and_1_divides_the_texts_alone(csv_file, opened):
    tags = {"tags": {**TAGS["tags"], "separator": "|"}}
    for blank_cells, missing in ([], None), ([""], "negative"):
        cells, labels = (
            ["[1, 0]", "[0, 1]", "[1, 1]", *blank_cells],
            {"tags": {**tags["tags"], "missing": missing}},
        )
        data = opened("csv", csv_file(rows_with("tags", cells)), labels=labels, **ALL_TRAIN)
        assert data.split("train").labels("tags").lists()[:3] == [[0], [1], [0, 1]]
    mixed_data = opened("csv", csv_file(rows_with("tags", ["a|b", "['b', 'c']"])), labels=tags, **ALL_TRAIN)
    assert names_of(mixed_data, "tags") == [["a", "b"], ["b", "c"]]


def test_rows_that_are_left_out_may_have_had_all_labels_of_another_column(csv_file, opened):
    other_columns = {"room": ["1", "1", "0"].__getitem__, "colour": ["", "red", ""].__getitem__}
    rows = rows_with("food", ["1", "", "0"], **other_columns)
    label = {"kind": "multi_label", "columns": ["food", "room"], "missing": "leave_out"}
    with pytest.raises(UserError, match=r"data\.csv, key labels\.colour: no row with a label is left"):
        opened("csv", csv_file(rows), labels={"f": label} | COLOUR, **ALL_TRAIN)


@pytest.mark.parametrize(
    ("cells", "classes", "note"),
    [
        (["ear, nose", "['eye']"], ("ear, nose", "eye"), None),
        (["a b", "a", "b"], ("a", "a b", "b"), 'colour: "a b" is one class, and so is each of its words'),
        (["K\u00e4se", "Ka\u0308se", "Brot"], ("Brot", "K\u00e4se"), "spelling"),
        (["New\u00a0York", "New York", "\u200bParis"], ("New York", "Paris"), "spelling"),
    ],
)
def test_a_single_label_is_one_and_what_cannot_be_seen_makes_no_other(csv_file, opened, cells, classes, note):
    data = opened("csv", csv_file(rows_with("colour", cells)), labels=COLOUR)
    assert data.info.space("colour").classes == classes
    notes = [info_note for info_note in data.info.notes if note is not None and note in info_note]
    assert len(notes) == (note is not None)
    if note == "spelling":
        assert "\\" in notes[0]  # the characters that differ are escaped, so that they are visible
        assert notes[0].isascii()


def test_columns_of_0_and_1(csv_file, opened):
    blank_rows = rows_with("food", ["1", ""], room=["", "1"].__getitem__)
    data = opened(
        "csv", csv_file(blank_rows), labels={"f": {"kind": "multi_label", "columns": ["food", "room"]}}
    )
    assert names_of(data, "f") == [["food"], ["room"]]
    assert data.info.notes[-1] == "labels: 2 of 4 cells (50.0%) are missing: no label, as no cell has 0"
    single_file = csv_file(rows_with("tags", ["1", "0", "", "1"]))
    with pytest.raises(UserError, match=r"1 of 4 cells of 0 and 1 are missing, the first at line 4"):
        opened("csv", single_file, labels=TAGS, fractions=[1, 0, 0])
    rows = [("a", "one", "train", "", "", "1", "0.0"), ("b", "two", "train", "", "", "yes", "True")]
    labels = {"stars": {"kind": "multi_label", "columns": ["room", "food"]}}
    data = opened("csv", csv_file(rows), labels=labels)
    assert data.info.space("stars").classes == ("room", "food")
    assert names_of(data, "stars") == [["food"], ["room", "food"]]
    with pytest.raises(UserError, match="key room: neither 0 nor 1 at line 3; found: 2; allowed: 1, 0, true"):
        opened("csv", csv_file([rows[0], (*rows[1][:6], "2")]), labels=labels)
    with pytest.raises(UserError, match=r"key labels\.stars\.columns\.0: no such column; did you mean room"):
        opened("csv", csv_file(rows), labels={"stars": {"kind": "multi_label", "columns": ["rooms"]}})


WIDE = ["a,1,0,", "b,0,1,-1", "c,1,,0", "d,1,1,1", "e,0,0,1"]


@pytest.mark.parametrize(
    ("missing", "uncertain", "ids", "labels", "unknown"),
    [
        ("negative", "negative", "abcde", [[0], [1], [0], [0, 1, 2], [2]], None),
        ("leave_out", "negative", "bde", [[1], [0, 1, 2], [2]], None),
        ("leave_out", "leave_out", "de", [[0, 1, 2], [2]], None),
        ("ignore", "negative", "abcde", [[0], [1], [0], [0, 1, 2], [2]], [[2], [], [1], [], []]),
        ("negative", "ignore", "abcde", [[0], [1], [0], [0, 1, 2], [2]], [[], [2], [], [], []]),
    ],
)
def test_what_a_blank_and_a_minus_one_among_0_and_1_mean_is_the_users_choice(
    tmp_path, opened, missing, uncertain, ids, labels, unknown
):
    lines = [f"text {row[0]},train,{row}" for row in WIDE]
    (tmp_path / "wide.csv").write_text("\n".join(["body,part,key,is_x,is_y,is_z", *lines]))
    label = {"kind": "multi_label", "columns": ["is_*"]}
    fractions = {"fractions": [1, 0, 0]}
    with pytest.raises(UserError, match=r"2 of 15 cells of 0 and 1 are missing, the first at line 2"):
        opened("csv", tmp_path / "wide.csv", labels={"f": label}, **fractions)
    label_options = {"f": {**label, "missing": missing, "uncertain": uncertain}}
    data = opened("csv", tmp_path / "wide.csv", labels=label_options, **fractions)
    train = data.split("train")
    assert (data.info.space("f").classes, "".join(train.ids)) == (("is_x", "is_y", "is_z"), ids)
    assert train.labels("f").lists() == labels
    unknown_rows = train.labels("f").unknown
    assert (None if unknown_rows is None else unknown_rows.lists()) == unknown
    assert [note.split(" are ")[0] for note in data.info.notes] == [
        "labels: 2 of 15 cells (13.3%)",
        "labels: 1 of 15 cells (6.7%)",
    ]


def test_without_a_split_column_a_seeded_hash_decides_and_every_class_is_trained(csv_file, opened):
    rows = rows_with("colour", [f"c{i // 2}" for i in range(200)], tags="t{}".format)
    first, other = (opened("csv", csv_file(rows), seed, split=None, labels=COLOUR) for seed in (0, 1))
    assert first.split("train").ids != other.split("train").ids
    assert len(first.split("train").labels("colour").unique()) == 100
    assert first.info.rows["test"] > 5
    # If every row has a tag that no other row has, all rows must train.
    tagged_data = opened("csv", csv_file(rows[:40]), split=None, labels=TAGS)
    assert tagged_data.info.rows == {"train": 40}
    (note,) = (note for note in tagged_data.info.notes if "splits" in note)
    message = "the splits have 100.0 / 0.0 / 0.0 % of the rows where 80 / 10 / 10 were wanted: each class"
    assert note.startswith(message)


def test_small_sets_have_the_wanted_shares_of_each_class(csv_file, opened):
    rows = rows_with("tags", [f"t{i % 20}" for i in range(400)])
    data = opened("csv", csv_file(rows), split=None, labels=TAGS)
    assert data.info.rows == {"train": 320, "validation": 40, "test": 40}
    for split, count in (("train", 16), ("validation", 2), ("test", 2)):
        assert data.split(split).labels("tags").columns.bincount().tolist() == [count] * 20
    assert data.info.notes == ()


def test_copies_of_a_text_and_rows_of_a_group_share_a_split(csv_file, opened):
    colours, group = [f"c{i % 2}" for i in range(60)], (lambda i: f"g{i // 3}")
    copies = rows_with("colour", colours, body=lambda i: f"Text, {i % 20}!", tags=group)
    data = opened("csv", csv_file(copies), split=None, labels=COLOUR)
    split = splits_of(data)
    assert len(data.info.rows) > 1
    assert all(split[f"k{i}"] == split[f"k{i + 20}"] == split[f"k{i + 40}"] for i in range(20))
    assert data.info.notes == ("rows with the content of another row, which lie in one split with it: 60",)
    grouped_rows = rows_with("colour", colours, tags=group)
    split = splits_of(opened("csv", csv_file(grouped_rows), split=None, group="tags", labels=COLOUR))
    assert all(split[f"k{i}"] == split[f"k{i // 3 * 3}"] for i in range(60))
    split_rows = rows_with("colour", colours, tags=group, part=lambda i: "train" if i % 3 else "test")
    with pytest.raises(UserError, match="a group is in two splits at line 2 and line 3; found: g0"):
        opened("csv", csv_file(split_rows), group="tags", labels=COLOUR)


def test_validation_that_is_not_given_is_held_out_of_train_and_said(csv_file, opened):
    colours, part_of = [f"c{i % 2}" for i in range(200)], (lambda i: "test" if i % 5 == 4 else "train")
    rows = rows_with("colour", colours, body=lambda i: f"text {i // 2}", part=part_of)
    data = opened("csv", csv_file(rows), labels=COLOUR)
    n_held_out = data.info.rows["validation"]
    assert data.info.rows["test"] == 40
    assert 5 < n_held_out < 40
    message = f"no validation rows are given: {n_held_out} of 160 training rows are held out for it"
    assert data.info.notes[0] == message
    assert data.info.notes[1].startswith("rows with the content of a training row: ")
    split = splits_of(data)
    pairs = [{split[f"k{i}"], split[f"k{i + 1}"]} for i in range(0, 200, 2)]
    assert all(len(pair - {"test"}) <= 1 for pair in pairs)
    with pytest.raises(UserError, match="no row is for training"):
        opened("csv", csv_file([rows[4]]), labels=COLOUR)


def test_several_files_are_one_table_and_their_names_may_say_the_split(tmp_path):
    for name, count in (("reviews_train", 9), ("reviews-Test", 3), ("more", 2)):
        lines = [f"text of {name} {i},c{i % 2}" for i in range(count)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["body,colour", *lines]) + "\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("reviews_train", "reviews-Test", "more")]
    options = {"text": "body", "labels": COLOUR}
    data = Dataset.open(prepare("csv", tmp_path / "home", {"path": files[:2], **options}))
    assert (data.info.rows["test"], sum(data.info.rows.values())) == (3, 12)
    assert (data.info.source, data.info.name) == ("reviews_train.csv, reviews-Test.csv", "reviews_train")
    with pytest.raises(UserError, match=r"more\.csv: the name contains no split"):
        prepare("csv", tmp_path / "home", {"path": files, **options})
    (tmp_path / "more.csv").write_text("body,colour\nsome text,c0,x\n")
    (tmp_path / "reviews_train.csv").rename(tmp_path / "other.csv")
    with pytest.raises(UserError, match=r"more\.csv: wrong number of fields at line 2"):
        prepare("csv", tmp_path / "home", {"path": [str(tmp_path / "other.csv"), files[2]], **options})


def test_rows_without_a_text_are_left_out_and_said(csv_file, opened):
    data = opened("csv", csv_file(changed(1, body=" ")), id=None)
    assert data.split("train").ids == ["0", "4"]
    assert data.split("train").texts() == [ROWS[0][1], ROWS[4][1]]
    assert data.info.notes[-1] == "rows without a text, which are left out: 1, the first at line 3"
    with pytest.raises(UserError, match="key body: 5 of 5 rows have no text, the first at line 2"):
        opened("csv", csv_file([(row[0], "", *row[2:]) for row in ROWS]))


def test_the_folder_has_the_name_of_the_file_and_an_edited_file_is_prepared_anew(csv_file, opened, tmp_path):
    original_data, edited_data = (
        opened("csv", csv_file(rows)) for rows in (ROWS, changed(0, body="First, edited"))
    )
    assert original_data.info.fingerprint != edited_data.info.fingerprint
    assert edited_data.split("train").texts()[0] == "First, edited"
    assert len(list((tmp_path / "home").glob("data-*"))) == 2
    named_data = opened("csv", csv_file(), name="my set/2")
    assert named_data.place.startswith(f"{tmp_path}/home/my_set_2-")


def test_images_beside_a_csv_and_inside_a_parquet_file(tmp_path, opened):
    labels = {"kind": {"kind": "single", "column": "kind"}}
    file, images = tmp_path / "data.csv", [png(i) for i in range(3)]
    (tmp_path / "pictures").mkdir()
    for i, image in enumerate(images):
        (tmp_path / "pictures" / f"{i}.png").write_bytes(image)
    lines = ["file,kind", *(f"pictures/{i}.png,k{i}" for i in range(3))]
    file.write_text("\n".join(lines))
    options = {"text": None, "id": None, "split": None, "labels": labels}
    data = opened("csv", file, image="file", **options)
    assert list(data.split("train").images()) == images
    assert data.split("train").ids == ["0", "1", "2"]

    (tmp_path / "pictures" / "2.png").write_bytes(png(9))
    data = opened("csv", file, image="file", **options)
    assert list(data.split("train").images()) == [*images[:2], png(9)]  # a new image under the same name

    for pixels in (images, [{"bytes": image, "path": None} for image in images]):
        pq.write_table(pa.table({"pixels": pixels, "kind": ["a", "b", "a"]}), tmp_path / "data.parquet")
        data = opened("parquet", tmp_path / "data.parquet", image="pixels", **options, fractions=[1, 0, 0])
        assert list(data.split("train").images()) == images

    (tmp_path / "pictures" / "1.png").unlink()
    file.write_text("\n".join([*lines, ""]))
    data = opened("csv", file, image="file", **options)
    assert (data.split("train").ids, data.info.rows) == (["0", "2"], {"train": 2})
    note = "rows without an image, which are left out: 1, the first at line 3; no such image file: 1"
    assert note in data.info.notes
    file.write_text("file,kind\nnowhere.png,k0\n")
    message = r"1 of 1 rows have no image, the first at line 2; found: nowhere\.png"
    with pytest.raises(UserError, match=message):
        opened("csv", file, image="file", **options)


SIMPLE = [(key, body.replace('"', ""), *cells) for key, body, *cells in ROWS]
WRONG = [*SIMPLE[:-1], ("a5", "Fifth", "train", "blue", "z", "9", "5")]


OPTIONS_REFUSED = {
    "text: null": "say which column it is; found: the columns key, body",
    "labels: {}": "say which column it is; found: the columns key, body",
    "labels: {x: {kind: single, columns: colour}}": "unknown key; did you mean column",
    "delimiter: ;;": "key data.options.delimiter: string should have at most 1 character",
    "image: body": "key data.options",
    "fractions: [0.5, 0.1, 0.1]": "key data.options",
    "encoding: utf-9": "key data.options.encoding: unknown encoding",
    "labels: {x: {kind: single, column: body}}": "the column body is text and labels",
    "labels: {x: {kind: double, column: c}}": "key data.options.labels.x",
    "labels: {x: {kind: single, column: c, classes: ['1', '1', '2']}}": "key data.options.labels.x",
    "labels: {x: {kind: aspects, columns: [c, c]}}": "key data.options.labels.x",
    "labels: {x: {kind: aspects, columns: [c], scale: [5, 1]}}": "key data.options.labels.x",
    "labels: {x: {kind: hierarchy, levels: [y, y]}}": "key data.options",
    "labels: {text: {kind: single, column: c}}": "key data.options.labels",
    "labels: {x: {kind: path, column: c, separator: /}, x_level2: {kind: single, column: d}}": "x_level2 is",
}


class TestCsv(SourceTestCase):
    name = "csv"
    files = {"data.csv": as_csv(SIMPLE)}
    path = "data.csv"
    options = OPTIONS
    warts = (
        Wart({"data.csv": as_csv(WRONG)}, "food"),
        Wart({"data.csv": ""}, "is empty: there is no header line"),
        Wart({"data.csv": as_csv([])}, "no rows"),
        Wart({"data.csv": as_csv(SIMPLE[:1]) + '\n"open'}, "not valid CSV at or after line 3"),
        Wart({"data.csv": as_csv([SIMPLE[0], SIMPLE[2], ("x", "y")])}, "wrong number of fields at line 4"),
        Wart({"data.csv": as_csv(SIMPLE, (*HEADER[:6], "food"))}, "columns.0: this column occurs twice"),
        *(
            Wart({}, message, yaml.safe_load(f"{{{options}}}"))
            for options, message in OPTIONS_REFUSED.items()
        ),
    )


class TestJsonl(SourceTestCase):
    name = "jsonl"
    files = {"data.jsonl": "".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in SIMPLE)}
    path = "data.jsonl"
    options = OPTIONS
    warts = (
        Wart({"data.jsonl": '{"body": '}, "not valid JSON at line 1"),
        Wart({"data.jsonl": '{"key": "a1", "part": "train"}\n'}, "no such column; found: body"),
        Wart(
            {"data.jsonl": '{"body": "x"}\n{"Body ": "y"}\n'},
            "one key in two spellings; found: 'body' and 'Body '",
        ),
    )


class TestParquet(SourceTestCase):
    name = "parquet"
    files = {"data.parquet": as_parquet(SIMPLE)}
    path = "data.parquet"
    options = OPTIONS
    warts = (
        Wart({"data.parquet": as_parquet(WRONG)}, "food"),
        Wart({"data.parquet": as_parquet(SIMPLE)[:-9]}, "data.parquet: not a whole Parquet file; was it"),
    )


class TestTxt(SourceTestCase):
    name = "txt"
    files = {"data.txt": "".join(f"__label__{'ab'[i % 2]} __label__c some words {i}\n" for i in range(60))}
    path = "data.txt"
    options = {"text": "text", "labels": {"labels": {"kind": "multi_label", "column": "labels"}}}
    warts = (
        Wart({"data.txt": "some words\n"}, "no such column"),
        Wart({"data.txt": b"__label__a \xff\n"}, "not text in utf-8-sig at or after line 1"),
    )


SAYS = {
    "train": "reviews_train seg_train TrainSet trainset train_val trainval2017 GermEval21_TrainData",
    "validation": "val2017 DEV evaluation eval PublicTest fer_public_test.csv",
    "test": "Testing GermEval21_TestData holdout Hold_Out test-00000-of-00001 fer_PrivateTest.csv",
    None: "train_test contest latest trainer more train_dev valid_from_train PublicTest_train",
}


@pytest.mark.parametrize(
    ("split", "name"), [(k, name) for k, names in SAYS.items() for name in names.split()]
)
def test_the_split_that_a_name_says(split, name):
    assert split_of_name(name) == split


@pytest.mark.parametrize("places", ["{}.csv", "{}/data.csv", None])
def test_eval_beside_dev_is_test(tmp_path, places):
    rows = [(split, f"{split} {i},{'ab'[i % 2]}") for split in ("train", "dev", "eval") for i in range(12)]
    files = {}
    for split, row in rows:
        files.setdefault(places.format(split) if places else "data.csv", []).append(f"{row},{split}\n")
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text,kind,part\n{''.join(lines)}")
    options = {"text": "text", "labels": {"kind": {"kind": "single", "column": "kind"}}}
    options |= {"path": [str(tmp_path / name) for name in files], "split": None if places else "part"}
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert data.info.rows == {"train": 12, "validation": 12, "test": 12}
    assert all(text.startswith("eval") for text in data.split("test").texts())


def test_folders_of_files_with_one_name_say_the_splits(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        rows = "".join(f"{split} {i},{'ab'[i % 2]}\n" for i in range(12))
        (tmp_path / split / "data.csv").write_text(f"text,kind\n{rows}")
    files = [str(tmp_path / split / "data.csv") for split in ("train", "test")]
    labels = {"kind": {"kind": "single", "column": "kind"}}
    data = Dataset.open(prepare("csv", tmp_path / "home", {"path": files, "text": "text", "labels": labels}))
    assert all(text.startswith("test") for text in data.split("test").texts())
    assert data.info.rows["test"] == 12


def test_a_column_of_splits_that_is_not_read_is_said(csv_file, opened):
    rows = [(*row[:2], "train", *row[3:]) for row in ROWS]
    file = csv_file(rows, header=("key", "body", "split", *HEADER[3:]))
    data = opened("csv", file, split=None, labels=COLOUR, fractions=[1, 0, 0])
    assert "the column split is not read: split=split takes the splits from it" in data.info.notes


def test_an_image_is_looked_for_below_the_table_before_it_is_above(tmp_path):
    for path in ("0.png", "set/images/0.png", "set/images/1.png", "2.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(png(0))
    files = ImageFiles(tmp_path / "set")
    assert files.find("0.png") == tmp_path / "set/images/0.png"
    assert files.find("2.png") == tmp_path / "2.png"
    assert files.find("images/1.png") == tmp_path / "set/images/1.png"
    (tmp_path / "set/more").mkdir()
    (tmp_path / "set/more/0.png").write_bytes(png(1))
    assert ImageFiles(tmp_path / "set").find("0.png") is None  # two files match, so neither is taken


@pytest.mark.parametrize("value", [b"\x00\x00\x80?", {"0": 0.5, "1": 1.5}])
def test_bytes_and_objects_are_no_vectors(tmp_path, opened, value):
    rows = [{"emb": value, "kind": "ab"[i % 2]} for i in range(8)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    labels = {"kind": {"kind": "single", "column": "kind"}}
    options = {"text": None, "vectors": "emb", "id": None, "split": None, "labels": labels}
    with pytest.raises(UserError, match="no list of numbers at row 0"):
        opened("parquet", tmp_path / "data.parquet", **options)


@pytest.mark.parametrize(
    ("column", "yes", "no"), [("is_valid", "validation", "train"), ("train", "train", "test")]
)
@pytest.mark.parametrize("write", [int, float, bool])
def test_a_column_of_flags_may_say_the_split(tmp_path, opened, column, yes, no, write):
    rows = [{"text": f"row {i}", column: write(i % 4 == 0), "kind": "ab"[i // 4 % 2]} for i in range(48)]
    pd.DataFrame(rows).to_csv(tmp_path / "data.csv", index=False)
    labels = {"kind": {"kind": "single", "column": "kind"}}
    data = opened("csv", tmp_path / "data.csv", text="text", id=None, split=column, labels=labels)
    numbers = {name: {int(text[4:]) for text in data.split(name).texts()} for name in data.info.rows}
    assert numbers[yes] <= set(range(0, 48, 4))
    assert not numbers[no] & set(range(0, 48, 4))
    assert sum(data.info.rows.values()) == 48
