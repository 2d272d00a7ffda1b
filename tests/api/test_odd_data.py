"""Tests data in forms that are easily misread: each is read as its author means it or refused in a line."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import mlcl
from mlcl.data import Dataset
from mlcl.errors import UserError

COUNT = 60
POLES = ["neg", "pos"]
LABELS = [POLES[row % 2] for row in range(COUNT)]
HOT = [[row % 2, 1 - row % 2, int(row % 3 == 0)] for row in range(COUNT)]
WORDS = "quick brown fox jumps over lazy dogs while seven clever birds sing".split()  # noqa: SIM905


def texts(sign=" "):
    """Returns COUNT different texts of eight words, joined by `sign`."""
    order = np.random.default_rng(0)
    return [sign.join([*order.permutation(WORDS)[:7], f"n{row}"]) for row in range(COUNT)]


def prepared(home, data, **columns):
    return Dataset.open(mlcl.prepare(data, home=home, **columns))


def classes(dataset, space="label"):
    return list(dataset.info.label_spaces[space].classes)


def labelled(values, name="label"):
    return pd.DataFrame({"text": texts(), name: values})


@pytest.mark.parametrize("sign", ["", "_"])
def test_texts_without_blanks_are_no_names_of_files(tmp_path, sign):
    long_texts = [
        "".join(map(chr, range(0x4E00 + row, 0x4E00 + row + 120))) + sign * 300 for row in range(COUNT)
    ]
    dataset = prepared(
        tmp_path, pd.DataFrame({"text": long_texts, "label": LABELS}), text="text", labels="label"
    )
    assert classes(dataset) == POLES


@pytest.mark.parametrize(
    "form",
    [
        str,
        lambda row: "[" + ", ".join(f"np.int64({flag})" for flag in row) + "]",
        lambda row: "[" + ", ".join(f"np.float64({flag}.0)" for flag in row) + "]",
        lambda row: "[" + ", ".join(f"np.{bool(flag)}_" for flag in row) + "]",
        lambda row: f"tensor([{', '.join(f'{flag}.' for flag in row)}])",
        lambda row: f"array([{', '.join(map(str, row))}], dtype=int32)",
        lambda row: str(np.array(row, dtype=bool)),
    ],
)
def test_lists_of_0_and_1_as_python_numpy_and_pytorch_represent_them(tmp_path, form):
    rows = [form(row) for row in HOT]
    dataset = prepared(tmp_path, labelled(rows), classes=["a", "b", "c"])
    reference = prepared(tmp_path, labelled(HOT), classes=["a", "b", "c"])
    assert classes(dataset) == ["a", "b", "c"]
    actual, expected = (data.split("train").labels("label").lists() for data in (dataset, reference))
    assert actual == expected


def test_names_of_images_may_have_blanks(tmp_path):
    rows = [f"chest x ray {row}.png" for row in range(COUNT)]
    for row, name in enumerate(rows):
        Image.fromarray(np.full((4, 4, 3), 4 * row, dtype=np.uint8)).save(tmp_path / name)
    pd.DataFrame({"scan": rows, "label": LABELS}).to_csv(tmp_path / "table.csv", index=False)
    assert prepared(tmp_path / "home", tmp_path / "table.csv").info.modality == "image"


@pytest.mark.parametrize("sign", [" ", "\t"])
def test_fasttext_has_a_blank_or_a_tab_after_its_labels(tmp_path, sign):
    lines = [f"__label__{label}{sign}{text}" for label, text in zip(LABELS, texts(), strict=True)]
    (tmp_path / "it.txt").write_text("\n".join(lines))
    dataset = prepared(tmp_path / "home", tmp_path / "it.txt")
    assert classes(dataset, "labels") == POLES
    assert set(dataset.split("train").texts()) <= set(texts())


def test_fields_in_quotes_may_follow_a_blank(tmp_path):
    lines = [f'"{text}, truly", "{label}"' for text, label in zip(texts(), LABELS, strict=True)]
    (tmp_path / "it.csv").write_text("\n".join(["text, label", *lines]))
    dataset = prepared(tmp_path / "home", tmp_path / "it.csv")
    assert classes(dataset) == POLES
    assert set(dataset.split("train").texts()) <= {f"{text}, truly" for text in texts()}


def test_codes_that_pandas_turned_into_floats_are_whole_numbers(tmp_path):
    codes = [[10_000_000, 12_345_678, 43_211_503][row % 3] if row % 10 else None for row in range(COUNT)]
    assert classes(prepared(tmp_path, labelled(codes))) == ["10000000", "12345678", "43211503"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["learn", "exam"], r"split.*found: (learn|exam)"),
        (["train", "test", "later"], r"split.*found: later"),
    ],
)
def test_unknown_splits_are_refused(tmp_path, values, problem):
    split = [values[row % len(values)] for row in range(COUNT)]
    with pytest.raises(UserError, match=problem):
        prepared(tmp_path, labelled(LABELS).assign(split=split))


def test_the_names_of_splits_in_a_competition(tmp_path):
    usage = [["Training", "PublicTest", "PrivateTest"][row % 3] for row in range(COUNT)]
    rows = prepared(tmp_path, labelled(LABELS).assign(Usage=usage)).info.rows
    assert rows == {"train": 20, "validation": 20, "test": 20}


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-16-le"])
def test_utf_16_without_a_mark_is_refused(tmp_path, encoding):
    (tmp_path / "it.csv").write_bytes(labelled(LABELS).to_csv(index=False).encode(encoding))
    with pytest.raises(UserError, match=r"it.csv, key encoding: a NUL in line 1.*utf-16-le"):
        prepared(tmp_path / "home", tmp_path / "it.csv")
    dataset = prepared(tmp_path / "home", tmp_path / "it.csv", encoding=encoding)
    assert classes(dataset) == POLES


def test_a_group_is_one_number_however_it_is_written(tmp_path):
    for name, number in (("train", int), ("test", float)):
        rows = labelled(LABELS).assign(patient=[number(row % 9) for row in range(COUNT)])
        rows.assign(text=rows["text"] + name).to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(UserError, match=r"group.* two splits"):
        prepared(tmp_path / "home", [tmp_path / "train.csv", tmp_path / "test.csv"], group="patient")


def test_vectors_may_be_whole_numbers_or_between_0_and_1(tmp_path):
    for numbers in (np.random.default_rng(0).random((COUNT, 5)), np.arange(COUNT * 5).reshape(COUNT, 5)):
        assert prepared(tmp_path, numbers, labels=LABELS).info.modality == "vectors"


@pytest.mark.parametrize("sign", ["\u200e", "\ufe0f", "\u2069", "\u034f", "\u3164", "\x07"])
def test_invisible_characters_make_no_other_class(tmp_path, sign):
    rows = [label + sign * (row % 4 == 0) for row, label in enumerate(LABELS)]
    assert classes(prepared(tmp_path, labelled(rows))) == POLES


def test_codes_with_an_exponent_or_many_digits_are_different_classes(tmp_path):
    codes = ["90", "9E1", "12", "1_2", "12345678901234567890", "12345678901234567891"]
    dataset = prepared(tmp_path, labelled([codes[row % 6] for row in range(COUNT)]), labels="label")
    assert set(classes(dataset)) == set(codes)


def test_frames_by_split(tmp_path):
    parts = {"train": labelled(LABELS)[:40], "test": labelled(LABELS)[40:]}
    assert prepared(tmp_path, parts).info.rows["test"] == 20


def test_columns_that_are_not_read_do_no_harm(tmp_path):
    timestamp = datetime.datetime(2024, 1, 1)
    table = pa.table(
        [pa.array(texts()), pa.array(LABELS), pa.array([timestamp] * COUNT), pa.array([timestamp] * COUNT)],
        names=["text", "label", "x", "x"],
    )
    pq.write_table(table, tmp_path / "it.parquet")
    assert classes(prepared(tmp_path / "home", tmp_path / "it.parquet")) == POLES


@pytest.mark.parametrize(
    ("data", "columns", "problem"),
    [
        (labelled([{"a", None}] * COUNT), {"labels": "label"}, "missing item"),
        (labelled([{"a", 1}] * COUNT), {}, "cannot be a Parquet table"),
        (labelled([10**30] * COUNT), {}, "cannot be a Parquet table"),
        (labelled([1j] * COUNT), {}, "cannot be a Parquet table"),
        (labelled(["pos\0", "neg"] * (COUNT // 2)), {"labels": "label"}, "NUL"),
        (labelled(LABELS), {"labels": 0}, "key labels: no name; found: 0"),
        (labelled(LABELS), {"text": ["text", 3]}, "key text: no name; found: 3"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, data, columns, problem):
    with pytest.raises(UserError, match=problem):
        prepared(tmp_path, data, **columns)
