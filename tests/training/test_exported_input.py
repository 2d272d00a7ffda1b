"""Tests of the files that exported models label: their formats, and rows that cannot be read."""

import csv
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import dataset, png, shades, tiny_job
from stored_runs import TAGS, exported

from mlcl.errors import UserError
from mlcl.training.export import load_model
from mlcl.training.export.labelling import Labelling
from mlcl.training.export.model import check_threshold
from mlcl.training.export.prediction_files import TableColumns, check_place, read_items, sink

TEXTS = ["ball noise1", "vote, law\nnoise2", 'law "noise3"']


@pytest.fixture(scope="module")
def model(tiny, tmp_path_factory):
    return load_model(exported(tiny_job(tiny, epochs=2), tmp_path_factory.mktemp("home"))[1], "cpu")


@pytest.fixture(scope="module")
def reader_of_images(tmp_path_factory):
    home = tmp_path_factory.mktemp("images")
    settings = ("objective.heads={}", "objective.classifier.labels=kind", "evaluation.knn=null")
    encoder = "encoder={name: cnn_image, width: 4, blocks: 1, image_size: 8}"
    job = tiny_job(shades(home / "data"), *settings, encoder, epochs=12, batch_size=4)
    return load_model(exported(job, home)[1], "cpu")


def write_texts(file, texts=TEXTS, **columns):
    """Writes texts in the format of the file's extension and returns the file."""
    frame = pd.DataFrame({"other": range(len(texts)), "text": texts, **columns})
    if file.suffix in (".csv", ".tsv"):
        frame.to_csv(file, index=False, sep="\t" if file.suffix == ".tsv" else ",")
    elif file.suffix == ".jsonl":
        frame.to_json(file, orient="records", lines=True)
    elif file.suffix == ".parquet":
        frame.to_parquet(file)
    else:
        file.write_text("".join(text.replace("\n", " ") + "\n" for text in texts))
    return file


@pytest.mark.parametrize("name", ["a.csv", "a.TSV", "a.jsonl", "a.parquet", "a.txt"])
def test_every_form_of_texts(name, model, tmp_path):
    file = write_texts(tmp_path / name.lower())
    items = list(read_items(file, "text"))
    assert [item.id for item in items] == ["0", "1", "2"]
    assert [item.content.replace("\n", " ") for item in items] == [text.replace("\n", " ") for text in TEXTS]
    batches = []
    assert Labelling(model, file, batch_size=2).run(batches.append).rows == 3
    assert [label for batch in batches for label in batch["label"]] == list(model.predict(TEXTS).labels)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_ids_are_kept(name, tmp_path):
    file = write_texts(tmp_path / name, id=["x", "y", "z"])
    assert [item.id for item in read_items(file, "text")] == ["x", "y", "z"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_an_id_that_is_missing_is_empty_and_no_number_of_a_row(name, tmp_path):
    file = write_texts(tmp_path / name, id=["1", None, "2"])
    assert [item.id for item in read_items(file, "text")] == ["1", "", "2"]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_file_may_begin_with_a_row_that_cannot_be_read(tiny, tmp_path, batch_size):
    settings = ("objective.heads={}", "objective.classifier.labels=ratings")
    model = load_model(exported(tiny_job(tiny, *settings, epochs=1), tmp_path)[1], "cpu")
    file = write_texts(tmp_path / "in.csv", texts=["", *TEXTS])
    with sink(tmp_path / "out.parquet") as write:
        Labelling(model, file, batch_size=batch_size, probabilities=True).run(write)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [bool(row["error"]) for row in rows] == [True, False, False, False]
    assert all(sum(aspect) == pytest.approx(1, abs=1e-5) for aspect in rows[1]["probabilities"])


def test_a_threshold_leaves_the_most_probable_label_where_the_job_does(tiny, tmp_path):
    for at_least_one in (True, False):
        job = tiny_job(tiny, *TAGS, f"evaluation.at_least_one={json.dumps(at_least_one)}", epochs=1)
        model = load_model(exported(job, tmp_path / str(at_least_one))[1], "cpu")
        assert [len(labels) for labels in model.predict(TEXTS, threshold=1.0).labels] == [
            int(at_least_one)
        ] * 3


def test_a_file_is_never_read_ahead(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("ball\n" * 1_000)
    items = read_items(file, "text")
    next(items)
    with file.open("a") as stream:
        stream.write("law\n" * 100_000)
    assert sum(1 for _ in items) == 100_999


def test_images_of_a_folder_and_of_tables(reader_of_images, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.png").write_bytes(png(20))
    (tmp_path / "in" / "deep" / "b.png").write_bytes(png(235))
    (tmp_path / "in" / "notes.txt").write_text("no image")
    pq.write_table(pa.table({"image": [png(20), png(235)]}), tmp_path / "bytes.parquet")
    cells = [{"bytes": png(20), "path": None}, {"bytes": None, "path": "in/deep/b.png"}]
    pq.write_table(pa.table({"image": cells}), tmp_path / "nested.parquet")
    (tmp_path / "paths.csv").write_text("image\nin/a.png\nin/deep/b.png\n")
    for name in ("in", "bytes.parquet", "nested.parquet", "paths.csv"):
        batches = []
        Labelling(reader_of_images, tmp_path / name).run(batches.append)
        assert batches[0]["label"][:2] == ["dark", "bright"], name
        assert (batches[0]["id"] == ["a.png", "deep/b.png", "notes.txt"]) == (name == "in")
        assert batches[0]["error"] == (["", "", "no image"] if name == "in" else ["", ""])


@pytest.mark.parametrize(
    "settings", [(), TAGS, ("objective.heads={}", "objective.classifier.labels=ratings")]
)
def test_every_form_of_predictions_says_the_same(settings, tiny, tmp_path):
    model = load_model(exported(tiny_job(tiny, *settings, epochs=1), tmp_path)[1], "cpu")
    labelling = Labelling(model, write_texts(tmp_path / "in.csv"), batch_size=1, probabilities=True)
    for form in ("csv", "jsonl", "parquet"):
        with sink(tmp_path / f"out.{form}") as write:
            labelling.run(write)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == lines
    with (tmp_path / "out.csv").open() as file:
        for row, line in zip(csv.DictReader(file), lines, strict=True):
            parsed_row = {
                name: value if isinstance(line[name], str) else json.loads(value)
                for name, value in row.items()
            }
            assert parsed_row == line


def test_a_failed_pass_leaves_no_file(model, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "ball"}\n[]\n')
    with pytest.raises(UserError, match="not an object at line 2"), sink(tmp_path / "out.csv") as write:
        Labelling(model, file, batch_size=1).run(write)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("settings", [(), TAGS])
def test_rows_without_a_text_get_an_error_in_place_of_a_label(form, settings, tiny, tmp_path):
    _, folder = exported(tiny_job(tiny, *settings, epochs=1), tmp_path)
    frame = pd.DataFrame({"body": ["", "ball", None, "law"], "key": list("wxyz")})
    frame.to_parquet(tmp_path / "in.parquet")
    columns = TableColumns(("body",), "key")
    labelling = Labelling(load_model(folder, "cpu"), tmp_path / "in.parquet", batch_size=1, columns=columns)
    with sink(tmp_path / f"out.{form}") as write:
        assert labelling.run(write).unread == 2
    reader = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(form, lambda f: pd.read_json(f, lines=True))
    rows = reader(tmp_path / f"out.{form}").astype(object).fillna("").to_dict("records")
    assert [row["id"] for row in rows] == list("wxyz")
    assert [row["error"] for row in rows] == ["the text is empty", "", "the text is empty", ""]
    empty_label = rows[0]["label"]
    assert empty_label == "[]" if form == "csv" and settings else not len(empty_label)
    assert len(rows[1]["label"]) or settings


def test_other_labels_are_not_scored(model, tiny, tmp_path):
    assert "test/accuracy" in Labelling(model, tiny).run(lambda _: None).metrics
    knn_metrics = Labelling(model, tiny, predictor="knn").run(lambda _: None).metrics
    assert all(name.startswith("knn/test/") for name in knn_metrics)
    columns = {"id": ["1"], "text": ["ball"], "split": ["test"], "detail": [None]}
    for name, classes in {
        "more": ("ball", "run", "vote", "law", "new"),
        "unknown": ("ball", "run", "vote", "law"),
    }.items():
        dataset(tmp_path / name, "other", {"detail": classes}, columns, allow_untrained=True)
        result = Labelling(model, tmp_path / name).run(lambda _: None)
        assert (result.rows, result.metrics, result.unknown) == (1, {}, True)
    assert not Labelling(model, write_texts(tmp_path / "in.txt")).run(lambda _: None).unknown


BAD_INPUT = {  # tests of the sources of tables cover the reader's own errors
    "a.csv": ("body\nball\n", r"no such column.*found: text; allowed: body, or text COLUMN"),
    "d.csv": ("text\n", "no rows"),
    "g.json": ("[1]\n", "not an object at row 0"),
    "j.xlsx": ("", "not a file format that can be read"),
    "k.csv": ("text,id,text\nball,1,law\n", "key text: this column occurs twice"),
    "m.jsonl": ('{"text": "a", "id": "\\ud800"}\n', "key id: not Unicode text at line 1"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_told_with_its_row(name, model, tmp_path):
    content, problem = BAD_INPUT[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=problem) as error:
        Labelling(model, tmp_path / name).run(lambda _: None)
    assert name in error.value.line()


def test_a_place_where_no_file_can_be_made(tmp_path):
    source = write_texts(tmp_path / "in.csv")
    (tmp_path / "folder.csv").mkdir()
    for path, problem in {
        source: "would replace the input",
        tmp_path / "folder.csv" / ".." / "in.csv": "would replace the input",
        tmp_path / "folder.csv": "is a folder",
        source / "out.csv": "cannot be written",
    }.items():
        with pytest.raises(UserError, match=f"key --out: {problem}"):
            check_place(path, source)
    with pytest.raises(UserError, match="key --out: would replace the input"):
        check_place(source, tmp_path)
    check_place(tmp_path / "out.csv", tmp_path)
    check_place(tmp_path / "new" / "out.csv", source)
    check_place(tmp_path / "folder.csv" / "out.csv", tmp_path / "nowhere.csv")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_of_which_no_row_can_be_read(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": ""}\n{"text": null}\n')
    for settings in ({}, {"probabilities": True}):
        batches = []
        assert Labelling(model, tmp_path / "in.jsonl", **settings).run(batches.append).unread == 2
        assert batches[0]["label"] == [None, None]


def test_a_row_that_cannot_be_read_gets_an_error_and_the_others_their_labels(
    model, reader_of_images, tmp_path
):
    texts = ['{"text": "ball"}', '{"text": 3}', '{"text": "a \\ud800"}', '{"text": " "}', '{"text": "vote"}']
    (tmp_path / "in.jsonl").write_text("\n".join(texts))
    (tmp_path / "a.png").write_bytes(png(235))
    images = [png(20), b"no image", None, {"bytes": None, "path": "nowhere.png"}, png(235)]
    cells = [{"bytes": cell, "path": None} if isinstance(cell, bytes) else cell for cell in images]
    pq.write_table(pa.table({"image": cells}), tmp_path / "in.parquet")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(png(20))
    (tmp_path / "in" / "b.png").write_bytes(b"no image")
    for reader, name, expected in (
        (model, "in.jsonl", ["", "no text: 3", "not Unicode text: half", "the text is empty", ""]),
        (
            reader_of_images,
            "in.parquet",
            ["", "image cannot be decoded", "no image", "no such image file", ""],
        ),
        (reader_of_images, "in", ["", "image cannot be decoded"]),
    ):
        batches = []
        result = Labelling(reader, tmp_path / name, probabilities=True).run(batches.append)
        errors, labels = batches[0]["error"], batches[0]["label"]
        assert all(error.startswith(prefix) for error, prefix in zip(errors, expected, strict=True)), errors
        assert [label is None for label in labels] == [bool(error) for error in errors]
        assert result.unread == sum(map(bool, expected))
    with pytest.raises(UserError, match=r"image cannot be decoded at row 0.*No such file"):
        reader_of_images.predict(["nowhere.png"])


def test_what_the_model_does_not_read(model, reader_of_images, tiny, tmp_path):
    write_texts(tmp_path / "in.txt")
    for reader, source in (
        (model, tmp_path),
        (reader_of_images, tmp_path / "in.txt"),
        (reader_of_images, tiny),
    ):
        with pytest.raises(UserError, match="this model reads"):
            Labelling(reader, source).run(lambda _: None)
    with pytest.raises(UserError, match="no such file or folder"):
        Labelling(model, tmp_path / "nowhere").run(lambda _: None)
    with pytest.raises(
        UserError, match=r"no such predictor; found: probe; allowed: classifier, knn, knn_best"
    ):
        model.predict(["a"], predictor="probe")
    for inputs in ("a text", {"text": "ball"}, pd.DataFrame({"text": ["ball"]}), None):
        with pytest.raises(UserError, match=f"texts, images or vectors; found: {type(inputs).__name__}"):
            model.predict(inputs)
    with pytest.raises(UserError, match="key threshold: is for several labels; this model predicts"):
        model.predict([None], threshold=0.5)  # raised before a row is read
    multi_label = model.index.model_copy(update={"task": "multi_label"})
    for threshold in (-0.1, 1.1, float("nan"), "0.5", [0.5]):
        with pytest.raises(UserError, match="key threshold: no probability"):
            check_threshold(multi_label, threshold)
    for size in (0, 2.5):
        with pytest.raises(
            UserError, match=f"key batch_size: not a whole number of at least 1; found: {size}"
        ):
            model.predict(["a"], batch_size=size)
    with pytest.raises(UserError, match="not a text at row 1"):
        model.predict(["a", None])
    with (
        pytest.raises(UserError, match=r"not a file format that can be written.*allowed: \.csv"),
        sink(tmp_path / "a.xls"),
    ):
        pass
