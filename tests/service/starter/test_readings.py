"""Tests that `mlcl init` reads labels correctly that are easily mistaken for something else."""

import csv
import io
import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from service.starter.layouts import NAMES, ROWS, body, flags, labels, objects, parquet, table

from mlcl.data import Dataset, prepare
from mlcl.data.split_assignment import image_digest
from mlcl.errors import UserError
from mlcl.service.starter.table_options import UserOptions, table_options

NAMED = {"names": NAMES, "_type": "ClassLabel"}
SEVERAL = {"feature": NAMED, "_type": "Sequence"}
DIGITS = ("0", "1", "2", "3")
LATE = [{"text": body(i, t), "a": i % 2, "b": i % 3 // 2, **({"c": 1} if i > 200 else {})} for i, t in ROWS]
MANY = [*LATE, *({**row, "text": f"{row['text']} x{n}"} for n in range(9) for row in LATE)]


def of_classes(kind, classes):
    """Returns a case of READ: a file with lists of 0 and 1 of type `kind`, and names for the classes."""
    content = parquet({"text": body, "labels": lambda i, t: list(map(kind, flags(t)))})
    class_names = dict(zip(NAMES, classes, strict=True))
    return (
        {"in.parquet": content},
        {"classes": classes},
        classes,
        lambda i, t: [class_names[n] for n in t],
        "",
    )


def topics(i, t):
    return t


def two_lines(i, t):
    return [f"{n} games" for n in t]


def one(i, t):
    return t[:1]


def written(header, *rows, delimiter=","):
    """Returns a CSV file whose columns after the text repeat the given cells."""
    return {"in.csv": table(header, lambda i, t: (body(i, t), *rows[i % len(rows)]), delimiter=delimiter)}


def paths(i, t):
    return [f"fun/{n}" if n in NAMES[:2] else f"life/{n}" for n in t]


def verses(i, t):
    """Returns a text that ends with lines which contain one comma each."""
    return f"{body(i, t)}\nI came, I saw\nI ran, I fell\nI slept, I rose\nthe end"


def branch(i, t):
    """Returns a text and three levels, the third with few classes that are each an only child."""
    return body(i, t), "abc"[i % 3], f"leaf {i % 24}", f"sub {i % 24}" if i % 24 < 6 else ""


READ = [
    (written(("text", "label", "model"), ("human", "human"), ("ai", "gpt-4"), ("ai", "llama")), {},
     ("ai", "human"), None, "not read: the column model, which may be labels"),
    (written(("text", "lang", "label"), ("en", "film"), ("en", "war"), ("de", "Liebe")), {},
     ("Liebe", "film", "war"), None, "levels: lang > label"),
    ({"in.csv": table(("text", "cat1", "cat2", "cat3"), branch)}, {}, ("a", "b", "c"), None,
     "levels: cat1 > cat2 > cat3"),
    *(({"in.csv": table(("text", "label"), lambda i, t: (verses(i, t) if i == 9 else body(i, t), t[0]),
                        quoting=quoting)}, {}, None, None, "labels: the column label, one a row")
      for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
    ({"in.csv": b"sep=;\r\n" + labels(lambda i, t: t[0], delimiter=";")}, {}, None, one,
     "the columns text, labels"),
    ({"in.jsonl": objects(lambda i, t: {"id": None if i == 7 else i, "text": body(i, t), "label": t[0]})}, {},
     None, one, "not read: the column id"),
    ({"in.parquet": parquet({"text": body, "labels": lambda i, t: NAMES.index(t[0])},
                            {"labels": {"names": ["NA", "b", "c", "None"], "_type": "ClassLabel"}})}, {},
     ("NA", "None", "b", "c"), lambda i, t: [("NA", "b", "c", "None")[NAMES.index(t[0])]], ""),
    ({"in.parquet": parquet({"text": body, "labels": lambda i, t: [-1] if i == 7 else [NAMES.index(t[0])]},
                            {"labels": [NAMED]})}, {}, None, lambda i, t: () if i == 7 else t[:1], ""),
    ({"in.jsonl": objects(lambda i, t: {"text": body(i, t), "labels": ["NA", *t] if i % 2 else list(t)})},
     {"classes": (*NAMES, "NA")}, (*NAMES, "NA"), lambda i, t: ("NA", *t) if i % 2 else t, ""),
    ({"in.csv": labels(lambda i, t: str(["None"] if i % 2 else list(t)))}, {"classes": (*NAMES, "None")},
     (*NAMES, "None"), lambda i, t: ("None",) if i % 2 else t, ""),
    ({"in.csv": labels(lambda i, t: i % 3)}, {"classes": NAMES}, NAMES, lambda i, t: [NAMES[i % 3]],
     "labels: no row has the number of 1 name, such as food"),
    ({"in.jsonl": objects(lambda i, t: {"text": body(i, t), "label": t[0], "answer": {"text": "x"}})}, {},
     None, one, ""),
    (written(("text", "label"), ("C",), ("C#",), ("Java",), ("",)), {}, ("C", "C#", "Java"), None, ""),
    (written(("text", "label"), ("Science\nFiction",), ("Drama",), ("War",)), {"kind": "single"},
     ("Drama", "Science Fiction", "War"), None, ""),
    (written(("text", "label"), ("Science\nFiction",), ("Drama",), ("War",)),
     {"kind": "single", "classes": ("War", "Drama", "Science Fiction")}, ("War", "Drama", "Science Fiction"),
     None, ""),
    ({"in.jsonl": objects(lambda i, t: {"text": body(i, t), "labels": [f"{n} &amp; more" for n in t]})}, {},
     None, lambda i, t: [f"{n} &amp; more" for n in t], ""),
    (written(("text", "codes"), ("101",), ("101,205",), ("310,205",)), {}, ("101", "205", "310"), None, ""),
    (written(("text", "label", "# likes"), ("film", 10), ("war", 20), ("love", 3)), {},
     ("film", "love", "war"), None, ""),
    (written(("title", "text|body", "label"), ("a|b", "film"), ("c|d", "war"), delimiter=";"),
     {"text": ("title",), "labels": ("label",)}, ("film", "war"), None, ""),
    (written(("text", "category", "subcategory"), ("Home", "Garden"), ("Garden", "Tools"), ("Home", "Beds")),
     {}, ("Garden", "Home"), None, "levels: category > subcategory"),
    (written(("text", "label1", "label2"), ("0", "film"), ("1", "war"), ("2", "love")), {},
     ("film", "love", "war"), None, "says the same as"),
    ({"in.csv": labels(lambda i, t: "\n".join(two_lines(i, t)))}, {}, None, two_lines, "divided at '\\n'"),
    *(({"in.csv": labels(lambda i, t, sign=sign: sign.join(paths(i, t)))}, {}, None, paths, "several a row")
      for sign in ";|"),
    ({"in.csv": table(("text", "summary", "label"), lambda i, t: (
        f"{'[Music] ' * (i == 0)}{body(i, t)}", f"of {i} in short and plain words", t[0]))}, {}, None,
     None, "text: the column text"),
    ({"in.csv": "\ufeff".encode() + labels(lambda i, t: t[0])}, {"encoding": "utf-8"}, None,
     lambda i, t: t[:1], "the columns text, labels"),
    ({"in.jsonl": objects(lambda i, t: {"text": body(i, t), "label": t[0]}).decode().encode("utf-16")}, {},
     None, lambda i, t: t[:1], ""),
    ({"in.csv": table(("text", "code"), lambda i, t: (
        body(i, t), ("04111", "4111", "250.0", "250.00")[i % 4]))}, {},
     ("250.0", "250.00", "04111", "4111"), None, ""),
    ({"in.csv": table(("file", "label"), lambda i, t: (body(i, t), t[0]))}, {}, None, lambda i, t: t[:1],
     "text: the column file"),
    *(({"in.csv": labels(lambda _, t, sign=sign: sign.join(map(str, flags(t))))}, {"classes": names},
       names or DIGITS, topics if names else None, "4 numbers a row are 0 and 1 for each of 4 classes")
      for sign, names in product(" ,;|", (NAMES, ()))),
    *(of_classes(kind, classes) for kind in (int, float, bool)
      for classes in (NAMES, DIGITS, ("1", "0", "2", "3"))),
    ({"in.jsonl": objects(lambda i, t: {"text": body(i, t), "cats": {n: int(n in t) for n in NAMES}})}, {},
     None, topics, "an object's names with 1, or its choices, are its labels"),
    ({"in.parquet": parquet({"text": body, "labels": lambda i, t: flags(t)}, {"labels": SEVERAL})}, {},
     NAMES, topics, ""),
    ({"in.parquet": parquet({"text": body, "labels": lambda i, t: -1 if i == 7 else NAMES.index(t[0])},
                            {"labels": NAMED})}, {}, None, lambda i, t: () if i == 7 else t[:1], ""),
    ({"in.csv": labels(lambda _, t: ",".join(str(NAMES.index(n)) for n in t))}, {"classes": NAMES},
     NAMES, topics, "labels: the numbers are read as the given classes, from 0 on"),
    ({"in.jsonl": "\n".join(map(json.dumps, MANY)).encode()}, {"missing": "negative"}, ("a", "b", "c"),
     None, ""),
    *(({"in.csv": table(("text", "label"), lambda i, t, names=names: (body(i, t), names[i % len(names)]))},
       {},
       names, lambda i, t, names=names: [names[i % len(names)]], "one a row")
      for names in (("Arts &amp; Culture", "R&amp;D", "Sport"),
                    ("\U0001f3f4\U000e0067\U000e007f England", "\U0001f3f4\U000e0073\U000e007f Scotland"))),
    ({"in.csv": table(("text", "labels", "is_valid"), lambda i, t: (body(i, t), t[0], i % 3 == 0))}, {},
     None, lambda i, t: t[:1], "split: the column is_valid"),
    ({"in.csv": table(("text", "label"), lambda i, t: (body(i, t), r"\N" if i == 7 else t[0]))}, {}, None,
     lambda i, t: () if i == 7 else t[:1], ""),
    ({"in.csv": labels(lambda i, t: "{}" if i == 7 else json.dumps({n: int(n in t) for n in NAMES}))}, {},
     None, lambda i, t: () if i == 7 else t, ""),
    ({"in.csv": table(("text", "clean_text", "label"), lambda i, t: (body(i, t), f"{body(i, t)} so", t[0]))},
     {}, None, lambda i, t: t[:1], "text: the column text"),
    ({"in.csv": table(("image", "text", "label"), lambda i, t: (f"{i}.png", body(i, t), t[0]))}, {},
     None, lambda i, t: t[:1], "not read: the column image of images or vectors"),
    ({"in.csv": table(("text", "level_0", "level_1"), lambda i, t: (
        body(i, t), "fun" if t[0] in NAMES[:2] else "life", t[0]))}, {},
     ("fun", "life"), lambda i, t: ["fun" if t[0] in NAMES[:2] else "life"], "levels: level_0 > level_1"),
    ({"in.parquet": parquet({"text": body, "label": lambda i, t: t[0],
                             "__index_level_0__": lambda i, t: "ab"[i % 2]})}, {},
     None, lambda i, t: t[:1], "labels: the column label, one a row"),
    ({"in.csv": table(("text", *NAMES, "rare"), lambda i, t: (
        body(i, t), *(v or -(i % 3 == k) for k, v in enumerate(flags(t))), -1 if i % 2 else ""))},
     {"missing": "negative", "uncertain": "ignore"}, (*NAMES, "rare"), topics, "5 columns of 0 and 1"),
    ({"in.csv": labels(lambda _, t: "_".join(t))}, {"separator": "_"}, None, topics, ""),
    ({"in.csv": table(("text", "spam"), lambda i, t: (body(i, t), i % 2))}, {"kind": "multi_label"},
     ("spam",), lambda i, t: ("spam",) * (i % 2), ""),
    ({"in.csv": labels(lambda _, t: " & ".join(t))}, {"kind": "single"}, None,
     lambda i, t: [" & ".join(t)], "is one class, and so is each of its parts at '&'"),
    ({"in.csv": table(("text", "label", "split"), lambda i, t: (
        body(i, t), t[0], "holdout" if i == 70 else ("train", "Test")[i // 4 % 2]))}, {},
     None, None, "split: the column split"),
    ({"in.csv": table(("text", *NAMES, "is_train"), lambda i, t: (body(i, t), *flags(t), i % 2))}, {},
     NAMES, topics, ""),
    ({"in.csv": table(("tokens", "label"), lambda i, t: (str(body(i, t).split()), t[0]))},
     {"text": ("tokens",), "labels": ("label",)}, None, lambda i, t: t[:1], ""),
    ({"in.csv": table(("text", "label"), lambda i, t: ("the same words" if i < 9 else body(i, t), t[0]))}, {},
     None, None, "rows with the content of another row, which lie in one split with it: 9, 6 of them with"),
]  # fmt: skip
"""Cases: a file, the user's options, the classes, the labels of a row, and a part of the output."""


@pytest.mark.parametrize(("file", "options", "classes", "expected", "line"), READ)
def test_labels_are_read_as_they_are_meant(tmp_path, file, options, classes, expected, line):
    ((name, content),) = file.items()
    (tmp_path / name).write_bytes(content)
    source, options, messages = table_options([tmp_path / name], UserOptions(**options))
    data = Dataset.open(prepare(source, tmp_path / "home", options))
    space = next(iter(options["labels"]))
    space_classes, rows = data.info.space(space).classes, {}
    for split in data.info.rows:
        part, split_labels = data.split(split), data.split(split).labels(space)
        lists = (
            split_labels.lists()
            if hasattr(split_labels, "lists")
            else [[c] if c >= 0 else [] for c in split_labels.tolist()]
        )
        rows |= {text: {space_classes[c] for c in row} for text, row in zip(part.texts(), lists, strict=True)}
    assert space_classes == (classes or space_classes)
    assert expected is None or rows == {body(i, t): set(expected(i, t)) for i, t in ROWS}
    assert any(line in text for text in (*messages, *data.info.notes))


def test_paths_with_some_bare_numbers_keep_their_sign(tmp_path):
    def path(i, t):
        return str(1000 + i) if i % 10 == 0 else f"Goods > {t[0]}, and more > {t[0]}"

    (tmp_path / "in.csv").write_bytes(labels(path))
    for user_options in (UserOptions(), UserOptions(labels=("labels",), kind="path")):
        _, options, _ = table_options([tmp_path / "in.csv"], user_options)
        assert options["labels"] == {"labels": {"kind": "path", "column": "labels", "separator": ">"}}
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert {name for name in data.info.space("labels_level1").classes if not name.isdigit()} == {"Goods"}
    assert "labels: 24 rows have a path of fewer than 3 levels" in data.info.notes


@pytest.mark.parametrize(
    ("cells", "levels"),
    [
        (["A/B", "A/C", "D/E", "D/F", "N/A"], [("A", "D"), ("B", "C", "E", "F")]),
        (["A/B", "A/C", "D/E", "D/F", "D/nan"], [("A", "D"), ("B", "C", "E", "F")]),
        (["A/A", "A/B", "C/C", "C/D"], [("A", "C"), ("A", "B", "C", "D")]),
        *(([f"A {sign} B", f"A {sign} C", f"D {sign} E", f"D {sign} F", "D"],
           [("A", "D"), ("B", "C", "E", "F")]) for sign in ("->", "=>")),
        (["A > Other", "A > C", "D > other", "D > F"], [("A", "D"), ("C", "F", "Other", "other")]),
        (["Men > Clothing, Shoes > Boots", "Men > Clothing, Shoes > Hats", "Kids > Toys > Cars",
          "Kids > Toys > Dolls"], [("Kids", "Men"), ("Clothing, Shoes", "Toys")]),
    ],
)  # fmt: skip
def test_paths_are_one_a_row_and_end_where_a_value_is_missing(tmp_path, cells, levels):
    (tmp_path / "in.csv").write_bytes(labels(lambda i, t: cells[i % len(cells)]))
    _, options, _ = table_options([tmp_path / "in.csv"], UserOptions())
    assert options["labels"]["labels"]["kind"] == "path"
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert [data.info.space(f"labels_level{level + 1}").classes for level in range(2)] == levels


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("listed", [False, True])
def test_a_share_of_32_bits_is_the_number_that_was_written(tmp_path, kind, listed):
    shares = [[tenths / 10 for tenths in ((i % 11), (i + 3) % 11, (i + 7) % 11)] for i, _ in ROWS]
    columns = {"labels": pa.array(shares, pa.list_(kind))}
    if not listed:
        columns = {
            n: pa.array(column, kind) for n, column in zip("abc", zip(*shares, strict=True), strict=True)
        }
    pq.write_table(pa.table({"text": [body(i, t) for i, t in ROWS], **columns}), tmp_path / "in.parquet")
    for threshold in (0.7, 0.9):
        user_options = UserOptions(threshold=threshold, labels=tuple(columns), classes=tuple("abc") * listed)
        source, options, _ = table_options([tmp_path / "in.parquet"], user_options)
        data = Dataset.open(prepare(source, tmp_path / "home", options))
        counts = sum(
            data.split(split).labels("labels").columns.bincount(minlength=3) for split in data.info.rows
        )
        assert counts.tolist() == [
            sum(row_shares[index] >= threshold for row_shares in shares) for index in range(3)
        ]


def test_classes_that_are_numbers_of_32_bits_have_the_digits_that_were_written(tmp_path):
    numbers = pa.array([(0.5, 1.1, None)[i % 3] for i, _ in ROWS], pa.float32())
    columns = {"text": [body(i, t) for i, t in ROWS], "level": numbers}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    source, options, _ = table_options([tmp_path / "in.parquet"], UserOptions(labels=("level",)))
    data = Dataset.open(prepare(source, tmp_path / "home", options))
    assert data.info.space("level").classes == ("0.5", "1.1")


def test_rows_that_say_of_each_class_that_they_lack_it_are_labelled(tmp_path):
    def row(i, t):
        return body(i, t), *(flags(t) if i % 3 else (0, 0, 0, 0)), "train" if i % 3 else "test"

    (tmp_path / "in.csv").write_bytes(table(("text", *NAMES, "split"), row))
    _, options, _ = table_options([tmp_path / "in.csv"], UserOptions())
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert data.split("test").labels("labels").counts().sum() == 0


def test_the_rows_that_decide_may_stand_at_the_end(tmp_path):
    """Tests a 0/1 column whose first 1 comes late, and a hierarchy that only late rows violate."""
    late_rows = [(i, ROWS[i % 240][1]) for i in range(20_100)]

    def row(i, t):
        area = ("fun", "life")[(t[0] in NAMES[2:]) != (i == 20_052)]
        return body(i, t), area, t[0], i % 2, i % 3 // 2, int(i == 20_001)

    (tmp_path / "in.csv").write_bytes(table(("text", "area", "topic", "a", "b", "c"), row, rows=late_rows))
    _, options, _ = table_options([tmp_path / "in.csv"], UserOptions(labels=("a", "b", "c")))
    assert options["labels"]["labels"]["columns"] == ["a", "b", "c"]
    with pytest.raises(UserError, match="not levels of one another"):
        table_options([tmp_path / "in.csv"], UserOptions(labels=("area", "topic")))


def test_columns_named_as_labels_are_read_once_and_whole(tmp_path):
    names = {"fun": ("arts, crafts", "music"), "life": ("food, drink", "home")}

    def row(i, t):
        area = ("fun", "life")[i % 2]
        return i % 5, body(i, t), area, names[area][i // 2 % 2]

    (tmp_path / "in.csv").write_bytes(table(("", "text", "area", "topic"), row))
    single = UserOptions(labels=("area", "topic", "t*c"), kind="single")
    _, options, _ = table_options([tmp_path / "in.csv"], single)
    assert options["labels"]["path"] == {"kind": "hierarchy", "levels": ["area", "topic"]}
    assert set(options["labels"]) == {"area", "topic", "path"}
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert data.info.space("topic").classes == ("arts, crafts", "food, drink", "home", "music")
    _, options, _ = table_options([tmp_path / "in.csv"], UserOptions(labels=("",)))
    assert options["labels"] == {"labels": {"kind": "single", "column": ""}}


def test_images_with_the_same_pixels_are_found_at_any_size():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    with io.BytesIO() as jpeg, io.BytesIO() as png:
        Image.fromarray(pixels).resize((150, 150)).resize((300, 300)).save(jpeg, "JPEG")
        Image.open(jpeg).save(png, "PNG")
        assert image_digest(jpeg.getvalue()) == image_digest(png.getvalue())
