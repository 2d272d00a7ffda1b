"""How `mlcl init` reads labels that other readers take for something else."""

import json

import pytest
from service.starter.layouts import NAMES, ROWS, body, flags, objects, parquet, table

from mlcl.data import Dataset, prepare
from mlcl.errors import UserError
from mlcl.service.starter.table_options import UserOptions, table_options


@pytest.fixture
def read(tmp_path):
    """The classes, the label names of each row by id, and what is said, of a file as init reads it."""

    def read(name, content, said=None):
        (tmp_path / name).write_bytes(content)
        source, options, lines = table_options([tmp_path / name], said or UserOptions())
        data = Dataset.open(prepare(source, tmp_path / "home", options))
        labels = next(iter(options["labels"]))
        classes, rows = data.info.space(labels).classes, {}
        for split in data.info.rows:
            part, found = data.split(split), data.split(split).labels(labels)
            lists = (
                found.lists() if hasattr(found, "lists") else [[c] if c >= 0 else [] for c in found.tolist()]
            )
            rows |= {
                text: tuple(classes[c] for c in its) for text, its in zip(part.texts(), lists, strict=True)
            }
        return classes, rows, [*lines, *data.info.notes]

    return read


def labels(write):
    """A CSV of texts and labels as `write` writes the topics of a row."""
    return table(("text", "labels"), lambda i, t: (body(i, t), write(i, t)))


def topics(rows):
    """Whether each row has its topics."""
    return {text: set(its) for text, its in rows.items()} == {body(i, t): set(t) for i, t in ROWS}


@pytest.mark.parametrize("sign", [" ", ",", ";", "|"])
@pytest.mark.parametrize("names", [NAMES, ()])
def test_0_and_1_with_signs_between_them_are_a_number_for_each_class(read, sign, names):
    classes, rows, said = read(
        "in.csv", labels(lambda _, t: sign.join(map(str, flags(t)))), UserOptions(classes=names)
    )
    assert classes == (names or ("0", "1", "2", "3"))
    assert topics(rows) or not names
    assert any("4 numbers a row are 0 and 1 for each of 4 classes" in line for line in said)


@pytest.mark.parametrize("names", [NAMES, ("0", "1", "2", "3"), ("1", "0", "2", "3")])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_lists_of_0_and_1_take_any_names(read, kind, names):
    rows = {"text": body, "labels": lambda i, t: list(map(kind, flags(t)))}
    classes, found, _ = read("in.parquet", parquet(rows), UserOptions(classes=names))
    assert classes == names
    given = dict(zip(NAMES, names, strict=True))
    assert found == {body(i, t): tuple(given[n] for n in NAMES if n in t) for i, t in ROWS}


def test_a_file_that_names_classes_may_hold_lists_of_0_and_1(read):
    metadata = {"labels": {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}}
    content = parquet({"text": body, "labels": lambda i, t: flags(t)}, metadata)
    classes, rows, _ = read("in.parquet", content)
    assert classes == NAMES
    assert topics(rows)


def test_numbers_of_a_file_that_names_classes(read):
    metadata = {"labels": {"names": NAMES, "_type": "ClassLabel"}}

    def numbered(number):
        return parquet(
            {"text": body, "labels": lambda i, t: number if i == 7 else NAMES.index(t[0])}, metadata
        )

    classes, rows, _ = read("in.parquet", numbered(-1))
    assert set(classes) == set(NAMES)
    assert rows[body(*ROWS[7])] == ()
    with pytest.raises(UserError, match=r"a number without a name at row 7; found: 4; allowed: 0 to 3"):
        read("in.parquet", numbered(4))


def test_names_that_are_given_name_numbers_from_0_on(read):
    content = labels(lambda _, t: ",".join(str(NAMES.index(n)) for n in t))
    classes, rows, said = read("in.csv", content, UserOptions(classes=NAMES))
    assert (classes, topics(rows)) == (NAMES, True)
    assert "labels: the numbers are read as the given classes, from 0 on" in said
    ones = labels(lambda _, t: str(NAMES.index(t[0]) + 1))
    with pytest.raises(UserError, match="unknown class at line"):
        read("in.csv", ones, UserOptions(classes=NAMES))


@pytest.mark.parametrize(
    ("content", "said", "message"),
    [
        (objects(lambda i, t: {"text": body(i, t), "labels": [1, 0, 2 if i == 70 else 1]}), UserOptions(),
         "neither 0 nor 1 at line 71; found: 2"),
        (objects(lambda i, t: {"text": body(i, t), "labels": [{"title": t[0]}]}), UserOptions(),
         "an object without a name or label at line 1"),
        (labels(lambda i, t: "food" if i == 71 else "".join(f"<{n}>" for n in t)), UserOptions(),
         "written in another way than most labels at line 73; found: food"),
        (labels(lambda i, t: "Dolls, Toys" if i == 70 else t[0]), UserOptions(kind="multi_label"),
         "allowed: separator ',', kind single"),
        (labels(lambda i, t: t[0]), UserOptions(separator="_", kind="single"),
         "key separator: is not for these labels"),
        (labels(lambda i, t: t[0]), UserOptions(threshold=0.5), "key threshold: is not for these labels"),
        (labels(lambda i, t: t[0]), UserOptions(threshold=0.0), "key threshold: no share; found: 0.0"),
        (labels(lambda i, t: t[0]), UserOptions(delimiter=";;"),
         "key delimiter: no sign between fields"),
        (labels(lambda i, t: t[0]), UserOptions(kind="path"), "no sign stands between levels in most rows"),
        (labels(lambda i, t: "1.0" if i == 70 else str(i % 3)), UserOptions(),
         "a class is spelt in two ways at line"),
    ],
)  # fmt: skip
def test_what_would_be_read_wrongly_is_refused(read, content, said, message):
    with pytest.raises(UserError) as caught:
        read("in.jsonl" if content.startswith(b"{") else "in.csv", content, said)
    assert message in caught.value.line()


def test_one_odd_cell_among_columns_of_0_and_1_is_named(read):
    content = table(
        ("text", *NAMES), lambda i, t: (body(i, t), *flags(t)[:3], "?" if i == 70 else flags(t)[3])
    )
    with pytest.raises(UserError, match=r"key food: neither 0 nor 1 at line 72; found: \?"):
        read("in.csv", content)


def test_keys_that_begin_late_are_columns(read):
    late = [
        {"text": body(i, t), "a": i % 2, "b": i % 3 // 2} | ({"c": 1} if i > 200 else {}) for i, t in ROWS
    ]
    content = "\n".join(
        map(json.dumps, [*late, *({**its, "text": f"{its['text']} x{n}"} for n in range(9) for its in late)])
    )
    classes, _, _ = read("in.jsonl", content.encode(), UserOptions(missing="negative"))
    assert classes == ("a", "b", "c")


def test_a_separator_means_several_labels(read):
    classes, rows, _ = read("in.csv", labels(lambda _, t: "_".join(t)), UserOptions(separator="_"))
    assert set(classes) == set(NAMES)
    assert topics(rows)


def test_one_column_of_0_and_1_may_be_one_label(read):
    content = table(("text", "spam"), lambda i, t: (body(i, t), i % 2))
    classes, rows, _ = read("in.csv", content, UserOptions(kind="multi_label"))
    assert classes == ("spam",)
    assert rows == {body(i, t): ("spam",) * (i % 2) for i, t in ROWS}


def test_words_that_join_are_no_labels(read):
    classes, _, said = read("in.csv", labels(lambda _, t: " & ".join(t)), UserOptions(kind="single"))
    assert "&" not in classes
    assert any("is one class, and so is each of its parts at '&'" in line for line in said)


def test_paths_with_some_bare_numbers_keep_their_sign(tmp_path):
    def path(i, t):
        return str(1000 + i) if i % 10 == 0 else f"Goods > {t[0]}, and more > {t[0]}"

    (tmp_path / "in.csv").write_bytes(labels(path))
    for said in (UserOptions(), UserOptions(labels=("labels",), kind="path")):
        _, options, _ = table_options([tmp_path / "in.csv"], said)
        assert options["labels"] == {"labels": {"kind": "path", "column": "labels", "separator": ">"}}
    data = Dataset.open(prepare("csv", tmp_path / "home", options))
    assert {name for name in data.info.space("labels_level1").classes if not name.isdigit()} == {"Goods"}
    assert "labels: 24 rows have a path of fewer than 3 levels" in data.info.notes


def test_a_column_that_is_named_split_is_never_drawn_anew(read, tmp_path):
    def split(value):
        return table(
            ("text", "label", "split"),
            lambda i, t: (body(i, t), t[0], value if i == 70 else ("train", "Test")[i // 4 % 2]),
        )

    with pytest.raises(UserError, match="key split: unknown split at line 72; found: future"):
        read("in.csv", split("future"))
    _, _, said = read("in.csv", split("holdout"))
    assert "split: the column split" in said


def test_a_column_that_tells_the_split_is_no_label(read):
    content = table(("text", *NAMES, "is_train"), lambda i, t: (body(i, t), *flags(t), i % 2))
    assert read("in.csv", content)[0] == NAMES


def test_texts_that_are_written_as_lists_of_words_are_joined(read):
    content = table(("tokens", "label"), lambda i, t: (str(body(i, t).split()), t[0]))
    _, rows, _ = read("in.csv", content, UserOptions(text=("tokens",), labels=("label",)))
    assert rows == {body(i, t): t[:1] for i, t in ROWS}


def test_copies_with_other_labels_are_said(read):
    content = table(("text", "label"), lambda i, t: ("the same words" if i < 9 else body(i, t), t[0]))
    _, _, said = read("in.csv", content)
    assert (
        "rows with the content of another row, which lie in one split with it: 9, 6 of them with other"
        in "".join(said)
    )


def test_files_with_other_columns_are_refused(read, tmp_path):
    (tmp_path / "train.csv").write_bytes(labels(lambda _, t: t[0]))
    (tmp_path / "test.csv").write_text("text\none\n")
    with pytest.raises(UserError, match=r"test\.csv: lacks columns that train\.csv has; found: labels"):
        table_options([tmp_path / "train.csv", tmp_path / "test.csv"], UserOptions())


@pytest.mark.parametrize("first", ["a fine phone that i like,pos", "a phone,sport", "label,text"])
def test_a_header_that_is_data_is_refused(read, first):
    rows = [
        *([first] if first != "label,text" else []),
        *(f"{body(i, t).replace(',', '')},{t[0]}" for i, t in ROWS),
    ]
    content = "\n".join([*rows, *([] if first != "label,text" else [first])])
    if first == "label,text":
        content = f"label,text\n{content}"
    with pytest.raises(UserError, match="the first line looks like data"):
        read("in.csv", content.encode())


def test_images_with_the_same_pixels_are_found_at_any_size(tmp_path):
    import io

    import numpy as np
    from PIL import Image

    from mlcl.data.split_assignment import image_digest

    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
    with io.BytesIO() as jpeg, io.BytesIO() as png:
        Image.fromarray(pixels).resize((150, 150)).resize((300, 300)).save(jpeg, "JPEG")
        Image.open(jpeg).save(png, "PNG")
        assert image_digest(jpeg.getvalue()) == image_digest(png.getvalue())
