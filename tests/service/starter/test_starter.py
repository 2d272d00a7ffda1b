import csv

import pytest
import torch
from builders import text_dataset, tree_dataset
from PIL import Image

from mlcl.config import dump_job, load_job, load_space, read_yaml
from mlcl.config.job import flatten
from mlcl.errors import UserError
from mlcl.service.starter import starter
from mlcl.service.starter.starter import start
from mlcl.service.starter.table_options import UserOptions

CLASSES = ("sport", "politics", "music", "food")
ROWS = [
    (f"r{i}", f"text number {i} of {CLASSES[i % 4]}", [CLASSES[i % 4], *CLASSES[: i % 3 == 0]])
    for i in range(200)
]


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(starter, "MODEL", "package:no-such-package")


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Starts from rows under a header, in a folder of their own."""
    monkeypatch.chdir(tmp_path)

    def begun(header, rows, *labels, text=None, ask=None):
        with (tmp_path / "in.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return started(tmp_path, tmp_path / "in.csv", *labels, text=text, ask=ask)

    return begun


def started(tmp_path, path, *labels, text=None, ask=None):
    said = UserOptions(text=(text,) if text else (), labels=labels)
    made = start([path], tmp_path / "out", tmp_path / "home", said, ask)
    job = load_job(made.files[0])
    space = load_space(made.files[1], job)
    tree = flatten(dump_job(job))
    for parameter in space.parameters:  # raises Misfit where the space does not hold the job as written
        parameter.domain.point_of(parameter.name, tree)
    assert {"objective.heads.*.weight", "evaluation.knn.k"} <= read_yaml(made.files[1])["space"].keys()
    assert "--trials" in made.files[2].read_text()
    return made, job


@pytest.mark.parametrize(
    ("header", "cells", "options"),
    [
        ("tags", lambda tags: [";".join(tags)], {"kind": "multi_label", "column": "tags", "separator": ";"}),
        ("tags", lambda tags: [",".join(tags)], {"kind": "multi_label", "column": "tags", "separator": ","}),
        ("tags", lambda tags: [str(tags)], {"kind": "multi_label", "column": "tags"}),
        (
            "codes",
            lambda tags: [" ".join(tags)],
            {"kind": "multi_label", "column": "codes", "separator": " "},
        ),
        ("label", lambda tags: tags[:1], {"kind": "single", "column": "label"}),
    ],
)
def test_a_table_gives_a_job_that_loads(begun, header, cells, options):
    made, job = begun(
        ["id", "body", header], [[id, text, *cells(sorted(set(tags)))] for id, text, tags in ROWS]
    )
    assert job.data.options["labels"] == {header: options}
    assert (job.data.options["text"], job.data.options["id"]) == ("body", "id")
    several = options["kind"] == "multi_label"
    assert job.evaluation.metric == ("val/micro_f1" if several else "val/accuracy")
    assert job.objective.classifier.loss == ("bce" if several else "cross_entropy")
    assert job.encoder.name == "features"
    assert "--text body --id id" in made.files[2].read_text()
    assert any(line.startswith(f"{header}: 4 ") for line in made.found)


def test_columns_of_0_and_1_are_one_label_space(begun):
    rows = [[text, *[int(name in tags) for name in CLASSES]] for _, text, tags in ROWS]
    _, job = begun(["text", *CLASSES], rows)
    assert job.data.options["labels"] == {"labels": {"kind": "multi_label", "columns": list(CLASSES)}}


def test_levels_are_recognised_and_each_has_a_head(begun):
    rows = [[text, "fun" if tags[0] in ("sport", "music") else "life", tags[0]] for _, text, tags in ROWS]
    made, job = begun(["text", "area", "topic"], rows)
    assert job.data.options["labels"]["path"] == {"kind": "hierarchy", "levels": ["area", "topic"]}
    assert job.objective.classifier.labels == "topic"
    assert set(job.objective.heads) == {"topic", "area"}
    assert any(line.startswith("levels: area > topic") for line in made.found)


def test_sentences_with_commas_are_texts(begun):
    rows = [[f"fracture of the {part} {i // 4}, {more}", tags[0]] for i, (_, _, tags) in enumerate(ROWS)
            for part, more in [(("arm", "leg")[i % 2], ("open", "closed")[i // 2 % 2])]]  # fmt: skip
    made, _ = begun(["diagnosis", "section"], rows)
    assert made.found[1:3] == (
        "text: the column diagnosis", "labels: the column section, one a row, such as 'sport'"
    )  # fmt: skip


def test_what_the_table_does_not_tell_is_asked_or_refused(begun, tmp_path):
    rows = [[text, tags[0], "good" if i % 3 else "bad"] for i, (_, text, tags) in enumerate(ROWS)]
    header = ["text", "style", "mood"]
    with pytest.raises(UserError, match=r"key labels: several columns may be it.*found: style, mood"):
        begun(header, rows)
    assert not (tmp_path / "out").exists()
    assert (
        begun(header, rows, ask=lambda question, answers, default: "mood")[1].objective.classifier.labels
        == "mood"
    )
    with pytest.raises(UserError, match=r"job.yaml.*is there already"):
        begun(header, rows, "style")


@pytest.mark.parametrize(
    ("header", "rows", "labels", "problem"),
    [
        (
            ["text", "n"],
            [[text, i / 7] for i, (_, text, _) in enumerate(ROWS)],
            (),
            "no column looks like labels",
        ),
        (["a", "b"], [[i, i % 2] for i in range(50)], (), "no column looks like texts"),
        (["text", "genre"], [[text, tags[0]] for _, text, tags in ROWS], ("gnre",), "did you mean genre"),
        (["text", "genre"], [[text, tags[0]] for _, text, tags in ROWS[:9]], (), "too few rows for"),
        (
            ["text", "genre", "mood"],
            [[text, tags[0], i % 3] for i, (_, text, tags) in enumerate(ROWS)],
            ("genre", "mood"),
            "not levels of one another",
        ),
        (
            ["text", "genre"],
            [[text, ("war;love", "love|war", "war", "love")[i % 4]] for i, (_, text, _) in enumerate(ROWS)],
            (),
            r"genre: one label or several at line \d+: name it; found: love\|war",
        ),
    ],
)
def test_what_cannot_be_begun_is_one_error(begun, tmp_path, header, rows, labels, problem):
    with pytest.raises(UserError, match=problem):
        begun(header, rows, *labels)
    assert not (tmp_path / "out").exists()


def test_names_and_encodings_of_files(tmp_path):
    lines = "\n".join(["Käse;label", *(f"Brot {i} und Käse und mehr;{'ab'[i % 2]}" for i in range(120))])
    for name, encoding, given in (("mein käse (1)", "utf-16", "utf-8-sig"), ("b", "cp1252", "cp1252")):
        (tmp_path / f"{name}.csv").write_bytes(lines.encode(encoding))
        said = UserOptions(encoding=given)
        made = start([tmp_path / f"{name}.csv"], tmp_path / name, tmp_path / "home", said)
        job = load_job(made.files[0])
        assert job.data.options["text"] == "Käse"
        assert job.experiment in ("mein_k_se_1", "b")
    with pytest.raises(UserError, match="such as encoding cp1252"):
        start([tmp_path / "b.csv"], tmp_path / "c", tmp_path / "home")
    with pytest.raises(UserError, match="unknown encoding"):
        start([tmp_path / "b.csv"], tmp_path / "c", tmp_path / "home", UserOptions(encoding="utf-9"))


def test_a_group_stays_in_one_split(begun, tmp_path):
    rows = [[text, tags[0], f"p{i // 4}"] for i, (_, text, tags) in enumerate(ROWS)]
    begun(["text", "genre", "patient"], rows, "genre")
    made = start([tmp_path / "in.csv"], tmp_path / "two", tmp_path / "home", UserOptions(group="patient"))
    assert load_job(made.files[0]).data.options["group"] == "patient"
    with pytest.raises(UserError, match="key group: no such column; did you mean patient"):
        start([tmp_path / "in.csv"], tmp_path / "three", tmp_path / "home", UserOptions(group="pateint"))


@pytest.mark.parametrize("uri", [None, "https://me:secret@lab.example"])
def test_the_readme_ends_with_how_the_best_model_is_served(tmp_path, monkeypatch, uri):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    made, job = started(tmp_path, text_dataset(tmp_path / "it"))
    commands = made.files[2].read_text().split("```")[1].split("\n")
    store = "" if uri else f"MLFLOW_TRACKING_URI=sqlite:///{tmp_path}/home/mlflow.db "
    served = f"{store}mlflow models serve -m models:/{job.experiment}@best --env-manager local --port 5001"
    assert commands[-2] == served


def test_prepared_sets_and_folders_of_images(tmp_path):
    _, job = started(tmp_path, text_dataset(tmp_path / "tiny"))
    assert (job.data.path, job.objective.classifier.labels) == (str(tmp_path / "tiny"), "detail")
    (tmp_path / "out").rename(tmp_path / "first")
    assert started(tmp_path, tmp_path / "tiny", "ratings")[1].objective.classifier.labels == "ratings"
    (tmp_path / "out").rename(tmp_path / "second")
    assert started(tmp_path, tree_dataset(tmp_path / "tree"))[1].objective.classifier.loss == "bce"
    (tmp_path / "out").rename(tmp_path / "third")
    for i in range(60):
        (tmp_path / "pictures" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (i, 4 * i, 0)).save(tmp_path / "pictures" / "ab"[i % 2] / f"{i}.png")
    _, job = started(tmp_path, tmp_path / "pictures")
    assert (job.data.source, job.encoder.name) == (
        "image_folder",
        "cnn_image" if not torch.cuda.is_available() else "resnet18",
    )
    assert len(job.objective.heads) == 1
