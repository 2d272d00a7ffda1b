"""`init`, a training, and `predict` on layouts of public files that were not touched."""

import csv
import shlex

import pytest
import torch
from data.conftest import png
from service.starter.layouts import LAYOUTS, NAMES, ROWS, body, table
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import load_job
from mlcl.data import Dataset
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.service.starter import starter
from mlcl.service.starter.starter import start
from mlcl.service.starter.table_options import UserOptions, table_options
from mlcl.testing.sources import put
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.export import write_export
from mlcl.training.job_data import JobData


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(starter, "MODEL", "package:no-such-package")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_public_layout_is_read_trained_on_and_predicted(layout, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "in", layout.files)
    paths = [tmp_path / "in" / path for path in layout.paths or layout.files]
    made = start(paths, tmp_path, tmp_path / "home", layout.options)
    told = "\n".join(made.found)
    assert [part for part in layout.says if part not in told] == [], told
    job = load_job(made.files[0], ["train.epochs=2", "evaluation.every=1"])
    labels = job.objective.classifier.labels
    classes = Dataset.open(made.data).info.space(labels).classes
    assert {name.rpartition(" > ")[2] for name in classes} == set(layout.labels)
    assert check(made.data).rows == dict(Dataset.open(made.data).info.rows)
    data = JobData.of(job, tmp_path / "home")
    run_experiment(
        data, folder=tmp_path / "run", context=Context(torch.device("cpu")), listener=lambda _: None
    )
    write_export(tmp_path / "model", tmp_path / "run", data, {})
    line = next(line for line in made.files[2].read_text().splitlines() if line.startswith("mlcl predict"))
    answer = CliRunner().invoke(app, [*shlex.split(line)[1:], "--out", "out.csv", "--device", "cpu"])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert len(rows) >= 80
    assert {row["id"] for row in rows if row["error"]} <= {"Training/law/notes.txt"}


def flagged(last):
    return table(("text", "a", "b", "c"), lambda i, t: (body(i, t), i % 2, i % 3 // 2, last(i)))


def two(second):
    return table(("text", "a", "b"), lambda i, t: (body(i, t), t[0], second(i)))


def lines(labels):
    """JSON lines with labels as they are written for a row's number."""
    return "\n".join(f'{{"text": "a b c {i}", "labels": {labels(i)}}}' for i in range(240)).encode()


SHARED = table(("text", "a", "b", "c"), lambda i, t: (body(i, t), i % 7 / 7, i % 9 / 9, i % 5 / 5))
REFUSED = {
    "the first line looks like data: say whether it is a header; found: 0": (
        "in.csv",
        table(None, lambda i, t: (i % 4, body(i, t))),
    ),
    "1 of 720 cells of 0 and 1 are missing, the first at line 9; allowed: missing negative": (
        "in.csv",
        flagged(lambda i: "" if i == 7 else i % 2),
    ),
    "1 of 720 cells of 0 and 1 are -1, uncertain, the first at line 9; allowed: uncertain": (
        "in.csv",
        flagged(lambda i: -1 if i == 7 else i % 2),
    ),
    "a share: say from which on it is a label at line 9; found: 0.25; allowed: threshold": (
        "in.csv",
        flagged(lambda i: 0.25 if i == 7 else i % 2),
        {"labels": ("a", "b", "c")},
    ),
    "columns of shares need a threshold; found: a, b, c; allowed: labels COLUMN with threshold 0.5": (
        "in.csv",
        SHARED,
    ),
    "several columns may be it: name one with labels; found: a, b": ("in.csv", two(lambda i: "xyz"[i % 3])),
    "not levels of one another: name the one to predict": (
        "in.csv",
        two(lambda i: "xyz"[i % 3]),
        {"labels": ("a", "b")},
    ),
    "a list with a missing item at line 71": (
        "in.jsonl",
        lines(lambda i: '["x", null]' if i == 70 else '["x", "y"]'),
    ),
    "a list of numbers with fractions at line 1; found: 0.5": (
        "in.jsonl",
        lines(lambda i: f"[1, {i % 3}.5]"),
        {"labels": ("labels",)},
    ),
    "a number for each class, but not as many at line 1; found: 3; allowed: 4 numbers": (
        "in.jsonl",
        lines(lambda i: "[0, 1, 0, 1]" if i == 70 else "[0, 1, 0]"),
    ),
    "a number for each class, but not as many at line 1; found: 3; allowed: 2 classes are named": (
        "in.jsonl",
        lines(lambda i: "[0, 1, 0]"),
        {"classes": ("x", "y")},
    ),
    "half of a surrogate pair at line 71": (
        "in.jsonl",
        lines(lambda i: '"\\ud800"' if i == 70 else f'"{"xy"[i % 2]}"'),
        {"labels": ("labels",)},
    ),
    "a class is spelt in two ways at line 72 and line": (
        "in.csv",
        table(("text", "label"), lambda i, t: (body(i, t), "Law" if i == 70 else t[0])),
    ),
    "no text in utf-8-sig at or after line 1": (
        "in.csv",
        table(("text", "label"), lambda i, t: (f"Größe {body(i, t)}", t[0]), encoding="cp1252"),
    ),
    "no image is in the folder of a class; found: notes.txt": (
        "in",
        {"in/a/1.png": png(1), "in/b/notes.txt": b"x"},
    ),
    "folders beside those of the splits name no split; found: ground_truth": (
        "in",
        {f"in/{name}/good/1.png": png(1) for name in ("train", "test", "ground_truth")},
    ),
}
"""What is said, the file, its content, and the user's options."""


def refused(message, tmp_path):
    """The error of a start on such a file."""
    path, content, *options = REFUSED[message]
    put(tmp_path, content if isinstance(content, dict) else {path: content})
    given = UserOptions(**(options[0] if options else {}))
    with pytest.raises(UserError) as caught:
        start([tmp_path / path], tmp_path / "out", tmp_path / "home", given)
    return caught.value


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_clear_is_one_line_and_leaves_no_file(message, tmp_path):
    assert message in refused(message, tmp_path).line()
    assert not (tmp_path / "out").exists()


def test_the_rows_that_decide_may_stand_at_the_end(tmp_path):
    """A 0/1 column whose first 1 comes late, and a hierarchy that late rows break."""
    late = [(i, ROWS[i % 240][1]) for i in range(20_100)]
    rows = table(
        ("text", "area", "topic", "a", "b", "c"),
        lambda i, t: (
            body(i, t),
            ("fun", "life")[(t[0] in NAMES[2:]) != (i == 20_052)],
            t[0],
            i % 2,
            i % 3 // 2,
            int(i == 20_001),
        ),
        rows=late,
    )
    (tmp_path / "in.csv").write_bytes(rows)
    _, options, _ = table_options([tmp_path / "in.csv"], UserOptions(labels=("a", "b", "c")))
    assert options["labels"]["labels"]["columns"] == ["a", "b", "c"]
    with pytest.raises(UserError, match="not levels of one another"):
        table_options([tmp_path / "in.csv"], UserOptions(labels=("area", "topic")))
