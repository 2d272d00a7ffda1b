"""Tests that `mlcl init` refuses unclear files, with errors that fit every command that reads them."""

import ast
import re
from pathlib import Path

import pytest
import typer
from data.conftest import png
from service.starter.layouts import NAMES, ROWS, body, flags, labels, objects, parquet, table

import mlcl
from mlcl.cli.main import app
from mlcl.data.sources.image_folder import Options
from mlcl.data.sources.table_files import CsvOptions
from mlcl.data.tables.options import MultiLabelColumn, SingleColumn
from mlcl.errors import UserError
from mlcl.service.starter.starter import start
from mlcl.service.starter.table_options import UserOptions
from mlcl.testing.sources import put


def flagged(last):
    return table(("text", "a", "b", "c"), lambda i, t: (body(i, t), i % 2, i % 3 // 2, last(i)))


def lines(write):
    """Returns JSON lines with labels that `write` makes from the row's number."""
    return "\n".join(f'{{"text": "a b c {i}", "labels": {write(i)}}}' for i in range(240)).encode()


def headless(first):
    """Returns a CSV file without a header, or with the header repeated in the last line."""
    rows = [f"{body(i, t).replace(',', '')},{t[0]}" for i, t in ROWS]
    return "\n".join(["label,text", *rows, first] if first == "label,text" else [first, *rows]).encode()


TWO = table(("text", "a", "b"), lambda i, t: (body(i, t), t[0], "xyz"[i % 3]))
NUMBERED = parquet({"text": body, "labels": lambda i, t: 4 if i == 7 else NAMES.index(t[0])},
                   {"labels": {"names": NAMES, "_type": "ClassLabel"}})  # fmt: skip
QUOTE = '"'
PLAIN = labels(lambda i, t: t[0])


def numbered(names):
    numbers = {"text": body, "labels": lambda i, t: NAMES.index(t[0])}
    return parquet(numbers, {"labels": {"names": list(names), "_type": "ClassLabel"}})


REFUSED = {
    "one label or several in these columns: name it; found: label1, label2": table(
        ("text", "label1", "label2"), lambda i, t: (body(i, t), t[0], t[-1] if i % 4 == 0 else "")),
    "several columns may be it: name one with labels; found: label, topic": table(
        ("text", "label", "topic"), lambda i, t: (body(i, t), i % 2, t[0])),
    "rows whose labels are not accepted; found: accept, reject; allowed: accept alone": table(
        ("text", "label", "answer", "_task_hash"),
        lambda i, t: (body(i, t), t[0], "accept" if i % 5 else "reject", i)),
    "no row is for training": {
        f"{name}.csv": labels(lambda i, t: t[0]) for name in ("validation", "test")},
    "an item of a list is one label or several at line 1; found: ": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [";".join(t)]})},
    "the header is repeated at line 1202; found: text, labels": b"\n".join(
        [PLAIN.splitlines()[0], *PLAIN.splitlines()[1:] * 5, b"text,labels"]),
    "the first line looks like data: say whether it is a header; found: # made in 2020": table(
        ("# made in 2020", "v2"), lambda i, t: (body(i, t), t[0])),
    "the first line looks like data: say whether it is a header; found: film;war": table(
        ("fine thing", "film;war"), lambda i, t: (body(i, t), ("film", "war", "love")[i % 3])),
    "no row of test has a label; found: 80 rows": table(("text", "labels", "split"), lambda i, t: (
        body(i, t), t[0] if i % 3 else "", "train" if i % 3 else "test")),
    "one label or several at line 2: name it; found: food#sport": table(
        ("text", "label"), lambda i, t: (body(i, t), ("food#sport", "food", "sport", "law")[i % 4])),
    "labels at line 3 are not divided by blanks; found: __label__b,": {
        "in.txt": b"__label__a one\n__label__b two\n__label__b, __label__a three\n" * 40},
    "not valid JSON at line 1; found: ": {"in.jsonl": b'{\n"text": "a",\n"label": "b"}'},
    "two signs divide each of the first lines alike; found: , |": ("\n".join(
        f"{body(i, t).replace(',', '')},sport|music|{t[0]}" for i, t in ROWS).encode(), {"header": False}),
    "several paths in a row at line 2; found: ": (labels(
        lambda i, t: ("Sport/Golf;Law/Tax", "Law/Tax", "Sport/Golf")[i % 3]),
        {"kind": "path", "separator": "/"}),
    "the first line looks like data: say whether it is a header; found: 0": table(
        None, lambda i, t: (i % 4, body(i, t))),
    "the first line looks like data: say whether it is a header; found: a fine phone": headless(
        "a fine phone that i like,pos"),
    "the first line looks like data: say whether it is a header; found: sport": headless("a phone,sport"),
    "the first line looks like data: say whether it is a header; found: label": headless("label,text"),
    "1 of 720 cells of 0 and 1 are missing, the first at line 9; allowed: missing negative": flagged(
        lambda i: "" if i == 7 else i % 2),
    "1 of 720 cells of 0 and 1 are -1, uncertain, the first at line 9; allowed: uncertain": flagged(
        lambda i: -1 if i == 7 else i % 2),
    "a share: say from which on it is a label at line 9; found: 0.25; allowed: threshold": (
        flagged(lambda i: 0.25 if i == 7 else i % 2), {"labels": ("a", "b", "c")}),
    "columns of shares need a threshold; found: a, b, c; allowed: labels COLUMN with threshold 0.5": table(
        ("text", "a", "b", "c"), lambda i, t: (body(i, t), i % 7 / 7, i % 9 / 9, i % 5 / 5)),
    "key food: neither 0 nor 1 at line 72; found: ?": table(("text", *NAMES), lambda i, t: (
        body(i, t), *flags(t)[:3], "?" if i == 70 else flags(t)[3])),
    "several columns may be it: name one with labels; found: a, b": TWO,
    "not levels of one another: name the one to predict": (TWO, {"labels": ("a", "b")}),
    "no column looks like labels": table(("text", "n"), lambda i, t: (body(i, t), i / 7)),
    "no column looks like texts": table(("a", "b"), lambda i, t: (i, i % 2)),
    "key labels: no such column; did you mean labels": (PLAIN, {"labels": ("lables",)}),
    "key group: no such column; did you mean text": (PLAIN, {"group": "txet"}),
    "too few rows for": labels(lambda i, t: t[0], rows=ROWS[:9]),
    "labels: one label or several at line": labels(
        lambda i, t: ("war;love", "love|war", "war", "love")[i % 4]),
    "a list with a missing item at line 71": {"in.jsonl": lines(
        lambda i: '["x", null]' if i == 70 else '["x", "y"]')},
    "a list of numbers with fractions at line 1; found: 0.5": (
        {"in.jsonl": lines(lambda i: f"[1, {i % 3}.5]")}, {"labels": ("labels",)}),
    "a number for each class, but not as many at line 1; found: 3; allowed: 4 numbers": {"in.jsonl": lines(
        lambda i: "[0, 1, 0, 1]" if i == 70 else "[0, 1, 0]")},
    "a number for each class, but not as many at line 1; found: 3; allowed: 2 classes are named": (
        {"in.jsonl": lines(lambda i: "[0, 1, 0]")}, {"classes": ("x", "y")}),
    "half of a surrogate pair at line 71": ({"in.jsonl": lines(
        lambda i: '"\\ud800"' if i == 70 else f'"{"xy"[i % 2]}"')}, {"labels": ("labels",)}),
    "key labels: not Unicode text: half of a surrogate pair at line 1": {"in.jsonl": lines(
        lambda i: f'"{"xy"[i % 2]}\\ud83d"')},
    "key id: not Unicode text: half of a surrogate pair at line 1": {"in.jsonl": lines(
        lambda i: f'"{"xy"[i % 2]}", "id": "\\ud83d{i}"')},
    "a key is not Unicode text: half of a surrogate pair; found: 'a\\ud83d'": {"in.jsonl": lines(
        lambda i: f'"{"xy"[i % 2]}", "a\\ud83d": 1')},
    "found: 'a\\nb'; allowed: separator $'\\n', kind single": labels(
        lambda i, t: ("a\nb", "c", "d")[i % 3]),
    "neither 0 nor 1 at line 71; found: 2": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [1, 0, 2 if i == 70 else 1]})},
    "an object without a name or label at line 1": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [{"title": t[0]}]})},
    "an object with the score 0.5 beside its name at line 1": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [{"label": n, "score": 0.5} for n in t]})},
    "an object with the value 0 beside its name at line 1": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [{"name": n, "value": 0} for n in NAMES]})},
    "an object with the start 3 beside its name at line 1": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": [{"start": 3, "label": n} for n in t]})},
    "the metadata name other classes than another file's; found: food": {
        "train.parquet": numbered(NAMES), "test.parquet": numbered(NAMES[::-1])},
    "one label or several at line 2: name it; found: 1,0": labels(
        lambda i, t: f"{1 + i % 3},{5 * (i % 2)}"),
    **{f"one label or several at line 3: name it; found: {names[1]}": table(
        ("text", "label"), lambda i, t, names=names: (body(i, t), names[i % len(names)]))
       for names in (("spam", "not spam"), ("Agree", "Strongly Agree", "Disagree", "Strongly Disagree"),
                     ("York", "New York", "Delhi", "New Delhi"))},
    "one label or several at line 2: name it; found: R&amp;D;war": labels(
        lambda i, t: ("R&amp;D;war", "war;love", "love", "war")[i % 4]),
    "two signs divide each of the first lines alike; found: , ;": (
        table(None, lambda i, t: (f"the match {i};{t[0]}", "ab"[i % 2])), {"header": False}),
    "a quote at or after line 9 is closed 5 lines later; found: the match 8,sport": "\n".join(
        ["text,label", *(f"{QUOTE * (i == 7)}the match {i}{QUOTE * (i == 12)},{t[0]}" for i, t in ROWS)]
    ).encode(),
    "a quote at or after line 2 is closed 5 lines later; found: the match 1,music": "\n".join(
        ["text,label", *(f"{QUOTE * (i == 0)}the match {i}{QUOTE * (i == 5)},{t[0]}" for i, t in ROWS)]
    ).encode(),
    "a quote at or after line 9 is closed 5 lines later; found: x8,the match 8": "\n".join(
        ["id,text", *(f"x{i},{QUOTE * (i == 7)}the match {i}{QUOTE * (i == 12)}" for i, t in ROWS)]
    ).encode(),
    "the key 'labels' twice in an object": {"in.jsonl": lines(lambda i: '"a", "labels": "b"')},
    "a number without a name at row 7; found: 4; allowed: 0 to 3": {"in.parquet": NUMBERED},
    "unknown class at line": (labels(lambda i, t: str(NAMES.index(t[0]) + 1)), {"classes": NAMES}),
    "a class is spelt in two ways at line 72 and line": labels(lambda i, t: "Law" if i == 70 else t[0]),
    "a class is spelt in two ways at line": labels(lambda i, t: "1.0" if i == 70 else str(i % 3)),
    "written in another way than most labels at line 73; found: food": labels(
        lambda i, t: "food" if i == 71 else "".join(f"<{n}>" for n in t)),
    "allowed: separator ',', kind single": (
        labels(lambda i, t: "Dolls, Toys" if i == 70 else t[0]), {"kind": "multi_label"}),
    "one label or several at line 2: name it; found: #a #a; allowed: separator ' ', kind single": (
        labels(lambda i, t: "#a #a"), {"kind": "multi_label", "labels": ("labels",)}),
    "name it; found: a b; allowed: separator ' ', kind single": (
        labels(lambda i, t: ("R&amp;D", "a b", "b a", "a")[i % 4]), {"kind": "multi_label"}),
    "a class is spelt in two ways at line 5 and line 2; found: Goods, goods; allowed: one of them": labels(
        lambda i, t: f"{'goods' if i == 3 else 'Goods'} > {t[0]}"),
    "a list with a missing item at line 1; found: NA, sport": {"in.jsonl": objects(
        lambda i, t: {"text": body(i, t), "labels": ["NA", *t[:1]]})},
    "key labels: a list with a missing item at line 1; found: ''; allowed: one path": (
        {"in.jsonl": lines(lambda i: "[null]")}, {"labels": ("labels",), "kind": "path", "separator": ">"}),
    **{f"several columns may be it: name one with text; found: {first}, {second}": table(
        (first, second, "label"), lambda i, t: (body(i, t), f"so they said {i}", t[0]))
       for first, second in (("sentence1", "sentence2"), ("text_a", "text_b"))},
    "found: text; allowed: delimiter ';' or another, with header true or false": {
        "in.txt": "\n".join(f"{body(i, t)};{t[0]}" for i, t in ROWS).encode()},
    "key separator: is not for these labels": (PLAIN, {"separator": "_", "kind": "single"}),
    "key threshold: is not for these labels": (PLAIN, {"threshold": 0.5}),
    "key threshold: no share; found: 0.0": (PLAIN, {"threshold": 0.0}),
    "key delimiter: no sign between fields": (PLAIN, {"delimiter": ";;"}),
    "no sign stands between levels in most rows": (PLAIN, {"kind": "path"}),
    "key place: no sign stands between levels in most rows": (table(("text", "place"), lambda i, t: (
        body(i, t), "")), {"kind": "path", "labels": ("place",)}),
    "key split: unknown split at line 72; found: future": table(("text", "label", "split"), lambda i, t: (
        body(i, t), t[0], "future" if i == 70 else ("train", "Test")[i // 4 % 2])),
    "allowed: the encoding that it has, such as encoding cp1252": labels(
        lambda i, t: f"Größe {t[0]}", encoding="cp1252"),
    "unknown encoding": (PLAIN, {"encoding": "utf-9"}),
    "test.csv: lacks columns that train.csv has; found: labels": {
        "train.csv": PLAIN, "test.csv": b"text\none\n"},
    "no image is in the folder of a class; found: notes.txt": {"in/a/1.png": png(1), "in/b/notes.txt": b"x"},
    "folders beside those of the splits name no split; found: ground_truth": {
        f"in/{name}/good/1.png": png(1) for name in ("train", "test", "ground_truth")},
    "train: a folder of images is read alone; found: test": {
        f"{name}/{label}/1.png": png(1) for name in ("train", "test") for label in "ab"},
    "key kind: is not for a folder of images; found: multi_label; allowed: allow_untrained": (
        {f"in/{label}/1.png": png(1) for label in "ab"}, {"kind": "multi_label"}),
    "key text: is not for a prepared data set; found: body; allowed: labels": (
        {"in/dataset.json": b"{}"}, {"text": ("body",), "labels": ("topic",)}),
}  # fmt: skip
"""The file or files and the user's options that cause an error, by the error's message."""


def refused(message, tmp_path):
    """Returns the error of `init` on the files of a message in REFUSED."""
    case = REFUSED[message]
    content, options = case if isinstance(case, tuple) else (case, {})
    files = content if isinstance(content, dict) else {"in.csv": content}
    put(tmp_path, files)
    paths = dict.fromkeys(tmp_path / Path(name).parts[0] for name in files)
    with pytest.raises(UserError) as error:
        start(list(paths), tmp_path / "out", tmp_path / "home", UserOptions(**options))
    return error.value


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_clear_is_one_line_and_leaves_no_file(message, tmp_path):
    """Tests that an unclear file is one line of error, which suggests only options of `mlcl init`."""
    error = refused(message, tmp_path)
    assert message in error.line()
    assert not (tmp_path / "out").exists()
    words = re.findall(r"[a-z_]+", str(error.allowed))
    named_options = {word for word in words if word in OPTIONS - {"image", "path", "text"}}
    assert named_options <= options_of("init"), error.allowed


ROOT = Path(mlcl.__file__).parent
SHARED = [
    *sorted((ROOT / "data" / "tables").glob("*.py")),
    *sorted((ROOT / "data").glob("*.py")),
    *(ROOT / "data" / "sources" / name for name in ("table_files.py", "image_folder.py")),
    ROOT / "service" / "starter" / "table_options.py",
    *(ROOT / "training" / name for name in ("export/labelling.py", "input_reader.py")),
]
"""Source files whose errors reach a user through `init`, `prepare`, `check` and `predict`."""
SECTIONS = (CsvOptions, Options, MultiLabelColumn, SingleColumn)
OPTIONS = {name for section in SECTIONS for name in section.model_fields}
"""The names of the options of sources and label spaces."""


def options_of(command):
    """Returns the options and arguments of a command, without leading dashes."""
    click_command = typer.main.get_command(app).commands[command]
    return {name.lstrip("-").replace("-", "_") for param in click_command.params for name in param.opts}


def raised(file):
    """Yields the texts of the errors that a source file raises."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("UserError", "error"):
            yield from (constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant))


@pytest.mark.parametrize("file", SHARED, ids=lambda file: file.name)
def test_no_error_has_the_notation_of_one_command(file):
    texts = [text for text in raised(file) if isinstance(text, str)]
    pattern = "|".join(OPTIONS)
    assert [text for text in texts if re.search(rf"--[a-z]|\b({pattern})=", text)] == [], file


def test_predict_can_read_what_init_reads():
    assert {"text", "id", "encoding", "delimiter", "header"} <= options_of("predict")
    assert {"kind", "separator", "delimiter", "encoding", "allow_untrained"} <= options_of("init")
