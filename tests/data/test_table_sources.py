import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlcl.data import Dataset, prepare
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, Wart

ROWS = [
    ("a1", "First, with a comma", "train", "red", "x; y", "4", ""),
    ("a2", 'Two\nlines and a "quote"', "train", "blue", "", "5", "1"),
    ("a3", "Third", "val", "", "y", "", "3"),
    ("a4", "Fourth", "test", "red", "x;z;x", "1", "0"),
    ("a5", "Fifth", "train", "blue", "z", "1", "5"),
]
HEADER = ("key", "body", "part", "colour", "tags", "food", "room")
LABELS = {
    "colour": {"kind": "single", "column": "colour"},
    "tags": {"kind": "multi_label", "column": "tags"},
    "stars": {"kind": "aspects", "columns": ["food", "room"]},
}
OPTIONS = {"text": "body", "id": "key", "split": "part", "labels": LABELS}


@pytest.fixture
def csv_file(tmp_path):
    def csv_file(rows=ROWS, header=HEADER, encoding="utf-8"):
        quote = '"{}"'.format
        lines = [",".join(quote(str(cell).replace('"', '""')) for cell in row) for row in (header, *rows)]
        (tmp_path / "data.csv").write_bytes("\n".join(lines).encode(encoding))
        return tmp_path / "data.csv"

    return csv_file


@pytest.fixture
def opened(tmp_path):
    def opened(source, file, **options):
        return Dataset.open(prepare(source, tmp_path / "home", {"path": str(file), **OPTIONS, **options}))

    return opened


def changed(row, **cells):
    rows = [list(r) for r in ROWS]
    for name, value in cells.items():
        rows[row][HEADER.index(name)] = value
    return rows


def assert_as_written(data):
    assert data.info.rows == {"train": 3, "validation": 1, "test": 1}
    assert data.info.space("colour").classes == ("blue", "red")
    assert data.info.space("tags").classes == ("x", "y", "z")
    train = data.split("train")
    assert train.ids == ["a1", "a2", "a5"]
    assert train.texts()[1] == 'Two\nlines and a "quote"'
    assert train.labels("colour").tolist() == [1, 0, 0]
    assert train.labels("tags").lists() == [[0, 1], [], [2]]
    assert train.labels("stars").tolist() == [[4, 0], [5, 1], [1, 5]]
    assert data.split("validation").labels("colour").tolist() == [-1]
    assert data.split("test").labels("tags").lists() == [[0, 2]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv(csv_file, opened, encoding):
    assert_as_written(opened("csv", csv_file(encoding=encoding)))


def test_csv_in_another_encoding_and_with_another_delimiter(tmp_path, opened):
    file = tmp_path / "data.csv"
    file.write_bytes("key;body;part;colour\n1;Käse;train;gelb\n".encode("latin-1"))
    options = {"labels": {"colour": LABELS["colour"]}, "encoding": "latin-1", "delimiter": ";"}
    assert opened("csv", file, **options).split("train").texts() == ["Käse"]
    with pytest.raises(UserError, match=r"cannot be read at or after line 1.*allowed: utf-8-sig"):
        opened("csv", file, **(options | {"encoding": "utf-8-sig"}))


def test_parquet_with_lists_numbers_and_nulls(tmp_path, opened):
    rows = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    for row in rows:
        row["tags"] = [tag.strip() for tag in row["tags"].split(";") if tag] or None
        row["food"] = float(row["food"]) if row["food"] else None
        row["room"] = int(row["room"]) if row["room"] else None
        row["colour"] = row["colour"] or None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data.parquet")
    assert_as_written(opened("parquet", tmp_path / "data.parquet"))


def test_classes_that_are_numbers_are_ordered_as_numbers(tmp_path, opened):
    table = pa.table({"key": ["a", "b", "c"], "body": ["t"] * 3, "part": ["train"] * 3, "colour": [10, 9, 1]})
    pq.write_table(table, tmp_path / "data.parquet")
    data = opened("parquet", tmp_path / "data.parquet", labels={"colour": LABELS["colour"]})
    assert data.info.space("colour").classes == ("1", "9", "10")
    assert data.split("train").labels("colour").tolist() == [2, 1, 0]


def test_hierarchies_go_through_single_spaces(csv_file, opened):
    rows = [(*row[:4], row[4], "1", "1") for row in ROWS]
    labels = {
        "coarse": {"kind": "single", "column": "part"},
        "fine": LABELS["colour"],
        "path": {"kind": "hierarchy", "levels": ["coarse", "fine"]},
    }
    data = opened("csv", csv_file(rows), labels=labels, split=None, fractions=[1, 0, 0])
    assert data.split("train").labels("path")[:, 1].tolist() == [1, 0, -1, 1, 0]
    labels["path"] = {"kind": "hierarchy", "levels": ["coarse", "tags"]}
    with pytest.raises(UserError, match=r"key labels.path.levels: not a single label space; found: tags"):
        opened("csv", csv_file(rows), labels=labels)


def test_without_a_split_column_a_seeded_hash_decides_and_every_class_is_trained(tmp_path, csv_file):
    rows = [(f"k{i}", f"text {i}", "", f"c{i // 2}", f"t{i}", "1", "1") for i in range(200)]
    options = {"path": str(csv_file(rows)), **OPTIONS, "split": None, "labels": {"colour": LABELS["colour"]}}
    one, other = (Dataset.open(prepare("csv", tmp_path / "home", options, split_seed=s)) for s in (0, 1))
    assert one.split("train").ids != other.split("train").ids
    assert len(one.split("train").labels("colour").unique()) == 100
    assert one.info.rows["test"] > 5
    # Where each row has a tag of its own, all rows must train.
    options["labels"] = LABELS
    assert Dataset.open(prepare("csv", tmp_path / "home", options)).info.rows == {"train": 200}


@pytest.mark.parametrize(
    ("row", "cells", "options", "message"),
    [
        (2, {"body": " "}, {}, "key body: empty at line 5"),
        (2, {"key": ""}, {}, "key key: empty at line 5"),
        (4, {"key": "a1"}, {}, "id of line 7 stands in line 2 too; found: a1"),
        (
            4,
            {"part": "dev2"},
            {},
            "key part: unknown split at line 7; found: dev2; allowed: train, validation, test",
        ),
        (4, {"room": "6"}, {}, "key room: not a rating at line 7; found: 6; allowed: 1, 2, 3, 4, 5"),
        (4, {"room": "good"}, {}, "key room: not a rating at line 7; found: good"),
        (0, {}, {"text": "bodi"}, "key text: no such column; found: bodi; allowed: key, body"),
        (
            0,
            {},
            {"labels": {"c": {"kind": "single", "column": "color"}}},
            "key labels.c.column: no such column",
        ),
        (
            4,
            {"colour": "bleu"},
            {"labels": {"c": {**LABELS["colour"], "classes": ["red", "blue"]}}},
            "key colour: unknown class at line 7; did you mean blue?; found: bleu; allowed: red, blue",
        ),
        (3, {"tags": "w"}, {}, "label in the test split only"),
    ],
)
def test_the_first_bad_value_is_named_with_file_line_and_column(
    tmp_path, csv_file, opened, row, cells, options, message
):
    file = csv_file(changed(row, **cells))
    with pytest.raises(UserError) as error:
        opened("csv", file, **options)
    assert error.value.file == str(file)
    assert message in error.value.line()
    assert [entry for entry in (tmp_path / "home").iterdir() if entry.is_dir()] == []


def test_a_record_of_another_length_and_a_doubled_header_are_named(csv_file, opened):
    with pytest.raises(UserError, match="wrong number of fields at line 4; found: 2; allowed: 7"):
        opened("csv", csv_file([ROWS[0], ROWS[2], ("x", "y")]))
    with pytest.raises(UserError, match="header line"):
        opened("csv", csv_file(header=("key", "body", "part", "colour", "tags", "food", "food")))


def test_an_open_quote_an_empty_file_and_a_bare_header_are_refused(tmp_path, csv_file, opened):
    file = csv_file([ROWS[0]])
    file.write_text(file.read_text() + '\n"open')
    with pytest.raises(UserError, match="cannot be read at or after line 3"):
        opened("csv", file)
    with pytest.raises(UserError, match="no rows"):
        opened("csv", csv_file([]))
    file.write_text("")
    with pytest.raises(UserError, match="header line"):
        opened("csv", file)


def test_a_truncated_parquet_file_is_named(tmp_path, opened):
    file = tmp_path / "data.parquet"
    pq.write_table(pa.table({"key": ["a"], "body": ["b"]}), file)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="truncated") as error:
        opened("parquet", file)
    assert error.value.file == str(file)


def test_an_edited_file_is_prepared_anew(csv_file, opened):
    before = opened("csv", csv_file())
    after = opened("csv", csv_file(changed(0, body="First, edited")))
    assert before.info.fingerprint != after.info.fingerprint
    assert after.split("train").texts()[0] == "First, edited"


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": "body"},
        {"text": None},
        {"fractions": [0.5, 0.1, 0.1]},
        {"encoding": "utf-9"},
        {"labels": {}},
        {"labels": {"x": {"kind": "double", "column": "c"}}},
        {"labels": {"x": {"kind": "single", "column": "c", "classes": ["1", "1", "2"]}}},
        {"labels": {"x": {"kind": "aspects", "columns": ["c", "c"]}}},
        {"labels": {"x": {"kind": "aspects", "columns": ["c"], "scale": [5, 1]}}},
        {"labels": {"x": {"kind": "hierarchy", "levels": ["y", "y"]}}},
        {"labels": {"text": {"kind": "single", "column": "c"}}},
    ],
)
def test_wrong_options_are_named(csv_file, opened, wrong):
    with pytest.raises(UserError, match=r"key data\.options"):
        opened("csv", csv_file(), **wrong)


def test_images_beside_a_csv_and_inside_a_parquet_file(tmp_path, opened, make_png):
    labels = {"kind": {"kind": "single", "column": "kind"}}
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        (tmp_path / "pictures" / f"{i}.png").write_bytes(make_png(i))
    lines = ["file,kind", *(f"pictures/{i}.png,k{i}" for i in range(3))]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    options = {"text": None, "id": None, "split": None, "labels": labels}
    data = opened("csv", tmp_path / "data.csv", image="file", **options)
    assert list(data.split("train").images()) == [make_png(i) for i in range(3)]
    assert data.split("train").ids == ["0", "1", "2"]

    for images in ([make_png(i) for i in range(3)], [{"bytes": make_png(i), "path": None} for i in range(3)]):
        pq.write_table(pa.table({"pixels": images, "kind": ["a", "b", "a"]}), tmp_path / "data.parquet")
        data = opened("parquet", tmp_path / "data.parquet", image="pixels", **options, fractions=[1, 0, 0])
        assert list(data.split("train").images()) == [make_png(i) for i in range(3)]

    (tmp_path / "pictures" / "1.png").unlink()
    (tmp_path / "data.csv").write_text("\n".join([*lines, ""]))
    with pytest.raises(UserError, match="key file: image cannot be read at line 3"):
        opened("csv", tmp_path / "data.csv", image="file", **options)


def as_csv(rows):
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in (HEADER, *rows))


def as_parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(zip(HEADER, zip(*rows, strict=True), strict=True))), sink)
    return sink.getvalue().to_pybytes()


SIMPLE = [(key, body.replace('"', ""), *cells) for key, body, *cells in ROWS]
WRONG = [*SIMPLE[:-1], ("a5", "Fifth", "train", "blue", "z", "9", "5")]


class TestCsv(SourceTestCase):
    name = "csv"
    files = {"data.csv": as_csv(SIMPLE)}
    path = "data.csv"
    options = OPTIONS
    warts = (
        Wart({"data.csv": as_csv(WRONG)}, "food"),
        Wart({"data.csv": ""}, "the header line must name each column once"),
        Wart({}, "data.options.delimiter", {"delimiter": ";;"}),
    )


class TestParquet(SourceTestCase):
    name = "parquet"
    files = {"data.parquet": as_parquet(SIMPLE)}
    path = "data.parquet"
    options = OPTIONS
    warts = (
        Wart({"data.parquet": as_parquet(WRONG)}, "food"),
        Wart({"data.parquet": as_parquet(SIMPLE)[:-9]}, "not a whole Parquet file; was it truncated?"),
    )
