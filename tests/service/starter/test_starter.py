"""Tests of the job, the space and the README that `mlcl init` writes."""

import csv
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from builders import dataset, text_dataset, tree_dataset
from PIL import Image

from mlcl.config import dump_job, load_job, load_space, read_yaml
from mlcl.config.job import flatten
from mlcl.config.space.prior import read_prior
from mlcl.data.format import LabelSpace
from mlcl.errors import UserError
from mlcl.models.pretrained import token_states
from mlcl.service.search.sampling import prior_starts
from mlcl.service.search.sampling import start as start_point
from mlcl.service.starter import first_job, first_sweep
from mlcl.service.starter.starter import start
from mlcl.service.starter.table_options import UserOptions

CLASSES = ("sport", "politics", "music", "food")
ROWS = [
    (f"r{i}", f"text number {i} of {CLASSES[i % 4]}", sorted({CLASSES[i % 4], *CLASSES[: i % 3 == 0]}))
    for i in range(200)
]


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setattr(first_job, "MODEL", "package:no-such-package")
    monkeypatch.setattr(first_job, "has_words", lambda: False)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Returns a function that runs `init` on a CSV file of a header and rows."""
    monkeypatch.chdir(tmp_path)

    def begun(header, rows, *labels, ask=None, to="out", **options):
        with (tmp_path / "in.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return started(tmp_path / to, tmp_path / "in.csv", UserOptions(labels=labels), ask, **options)

    return begun


def started(out, path, said=None, ask=None, **how):
    starter = start([path], out, out.parent / "home", said, ask, **how)
    job = load_job(starter.files[0])
    space = load_space(starter.files[1], job)
    tree = flatten(dump_job(job))
    for parameter in space.parameters:  # raises Misfit if the space does not contain the job as written
        parameter.domain.point_of(parameter.name, tree)
    space_keys = read_yaml(starter.files[1])["space"].keys()
    assert ("objective.heads.*.weight" in space_keys) == bool(job.objective.heads)
    assert ("evaluation.knn.k" in space_keys) == (job.encoder.name != "transformer")
    assert "--trials" in starter.files[2].read_text()
    return starter, job


def tags(**option):
    return {"tags": {"kind": "multi_label", "column": "tags", **option}}


AREA = {"sport": "fun", "music": "fun", "politics": "life", "food": "life"}
JOBS = [
    *(("id body tags", lambda i, id, text, classes, sign=sign: [id, text, sign.join(classes)],
       tags(separator=sign), "tags", "tags: 4 ") for sign in ";, "),
    ("id body tags", lambda i, id, text, classes: [id, text, str(classes)], tags(), "tags", "tags: 4 "),
    ("id body label", lambda i, id, text, classes: [id, text, classes[0]],
     {"label": {"kind": "single", "column": "label"}}, "label", "label: 4 "),
    ("text sport politics music food",
     lambda i, id, text, classes: [text, *(int(c in classes) for c in CLASSES)],
     {"labels": {"kind": "multi_label", "columns": list(CLASSES)}}, "labels", "labels: 4 columns of 0 and 1"),
    ("text area topic", lambda i, id, text, classes: [text, AREA[classes[0]], classes[0]],
     {"area": {"kind": "single", "column": "area"}, "topic": {"kind": "single", "column": "topic"},
      "path": {"kind": "hierarchy", "levels": ["area", "topic"]}}, "topic", "levels: area > topic"),
    ("diagnosis section", lambda i, id, text, classes: [  # a sentence with commas is a text
        f"fracture of the {('arm', 'leg')[i % 2]} {i // 4}, {('open', 'closed')[i // 2 % 2]}", classes[0]],
     {"section": {"kind": "single", "column": "section"}}, "section", "text: the column diagnosis"),
]  # fmt: skip
"""Cases: a header, its rows, the label spaces, the one to predict, and the beginning of an output line."""


@pytest.mark.parametrize(("header", "row", "spaces", "target", "line"), JOBS)
def test_a_table_gives_a_job_that_loads(begun, header, row, spaces, target, line):
    starter, job = begun(header.split(), [row(i, *cells) for i, cells in enumerate(ROWS)])
    assert job.data.options["labels"] == spaces
    is_multi_label = spaces[target]["kind"] == "multi_label"
    assert job.evaluation.metric == ("val/micro_f1" if is_multi_label else "val/accuracy")
    classifier = job.objective.classifier
    assert (classifier.labels, classifier.loss) == (target, "bce" if is_multi_label else "cross_entropy")
    assert job.encoder.name == "features"
    assert set(job.objective.heads) == ({"contrast"} if is_multi_label else set(spaces) - {"path"})
    assert any(message.startswith(line) for message in starter.found), starter.found
    if header.startswith("id"):
        assert (job.data.options["text"], job.data.options["id"]) == ("body", "id")
        assert "--text body --id id" in starter.files[2].read_text()


@pytest.mark.parametrize("several", [False, True])
def test_the_job_is_the_first_point_of_the_prior_and_the_search_goes_on_with_it(begun, several):
    rows = [[text, ";".join(classes) if several else classes[0]] for _, text, classes in ROWS]
    starter, job = begun(["text", "tags" if several else "label"], rows)
    point = read_prior(first_job.PRIORS[several], Path()).points[0]
    job_values = flatten(dump_job(job))
    for key, value in point.items():
        keys = [job_key for job_key in job_values if fnmatchcase(job_key, key)]
        assert keys, key
        assert all(job_values[job_key] == value for job_key in keys)
    space = load_space(starter.files[1], job)
    expected = [start_point(space, job_values), *prior_starts(space, job_values)]
    assert expected[0] == expected[1]
    assert None not in expected
    assert len(expected) >= 4


@pytest.mark.parametrize(
    ("budget", "options"), [("20m", "--trials 24 --seeds 6"), ("90s", "--trials 6 --seeds 6")]
)
def test_the_budget_holds_on_words_alone_and_paths_are_quoted(begun, monkeypatch, budget, options):
    monkeypatch.setattr(first_sweep, "usable_cpus", lambda: 2)
    rows = [[text, ";".join(classes)] for _, text, classes in ROWS]
    starter, job = begun(["text", "tags"], rows, budget=budget, to="my job")
    assert ("transformer" in job.encoder.inputs, options in starter.next) == (False, True), starter.next
    assert starter.rules[-1].startswith("time: about")
    assert [Path(word).name for word in shlex.split(starter.next)[2:4]] == ["job.yaml", "space.yaml"]
    assert starter.files[2].read_text().count(" --home ") == 3  # sweep, report, export


@pytest.mark.parametrize(
    ("words", "step", "repeat", "budget", "encoder", "others", "options", "fewest"),
    [
        (True, 0.2, 1, "20m", "transformer", ["features"], "--trials 24 --seeds 6", 100),
        (True, 0.2, 1, "20m", "features", ["words"], "--trials 24 --seeds 6", 3000),
        (True, 2.0, 1, "20m", "transformer", ["features"], "--trials 12 --seeds 6", 100),
        (True, 2.0, 1, "2h", "transformer", ["features"], "--trials 24 --seeds 6", 100),
        (False, 2.0, 1, "3m", "transformer", ["features"], "--trials 1 --seeds 3 --searches 1", 100),
        (False, 2.0, 1, "120s", "transformer", ["features"], "--trials 1 --seeds 2 --searches 1", 100),
        (True, 30.0, 1, "20m", "features", ["words"], "--trials 24 --seeds 6", 100),
        (True, 0.2, 30, "200s", "features", [], "--trials 24 --seeds 6", 100),
        (False, 0.2, 30, "1s", "features", [], "--trials 1 --seeds 2 --searches 1", 100),
    ],
)
def test_the_budget_chooses_encoder_and_arms(
    begun, monkeypatch, words, step, repeat, budget, encoder, others, options, fewest
):
    monkeypatch.setattr(first_job, "model_folder", Path)
    monkeypatch.setattr(first_job, "has_words", lambda: words)
    monkeypatch.setattr(first_sweep, "_step_seconds", lambda tokens, max_tokens: step)
    monkeypatch.setattr(first_sweep, "FEWEST_TUNED_OF_SEVERAL", fewest)
    monkeypatch.setattr(first_sweep, "LEAST_EPOCHS", 6)
    monkeypatch.setattr(first_sweep, "MOST_EPOCHS", 6)
    monkeypatch.setattr(first_sweep, "usable_cpus", lambda: 2)
    rows = [[" ".join([text] * repeat), ";".join(classes)] for _, text, classes in ROWS]
    starter, job = begun(["text", "tags"], rows, budget=budget)
    assert (job.encoder.name, options in starter.next) == (encoder, True), starter.next
    assert job.train.precision == ("auto" if encoder == "transformer" else "float32")
    assert job.objective.classifier.pos_weight == "sqrt"
    choices = read_yaml(starter.files[1])["space"]["objective.classifier.pos_weight"]["choice"]
    assert sorted(choices) == ["none", "sqrt"]
    assert [name for name in ("features", "words") if f"/{name}.yaml" in starter.next] == others
    assert all(file.exists() for file in starter.files)
    assert starter.rules[-1].startswith("time: about")
    assert ("which is less" in starter.rules[-1]) == (budget == "1s")
    heads = "objective.heads.*.weight" in read_yaml(starter.files[1])["space"]
    has_room = encoder == "features" or step == 0.2 or budget == "2h"
    assert heads == bool(job.objective.heads) == has_room
    assert any("heads (contrast)" in rule for rule in starter.rules) == has_room
    if encoder == "features":
        texts = ("tfidf", "characters") if repeat == 1 else ("tfidf",)
        assert job.encoder.inputs == (*texts, "transformer")
        word_jobs = [load_job(file) for file in starter.files if file.name == "words.yaml"]
        assert [word_job.encoder.inputs for word_job in word_jobs] == [(*texts, "words")] * len(others)
        assert [word_job.evaluation.ensemble for word_job in word_jobs] == ["text_svm"] * len(others)
    assert job.evaluation.ensemble == "text_encoder_svm"
    assert starter.rules.count("ensemble: with text_encoder_svm, whose weight validation chooses") == 1


@pytest.mark.parametrize(
    ("rows", "epochs"), [(100, 24), (500, 24), (1_000, 12), (1_600, 8), (2_000, 6), (50_000, 6)]
)
def test_fewer_rows_are_read_in_more_epochs(rows, epochs):
    assert first_sweep.tuned_epochs(rows) == epochs


@pytest.mark.parametrize(("several", "encoder"), [(True, "transformer"), (False, "features")])
def test_texts_of_several_labels_are_few_enough_for_fine_tuning_first(begun, monkeypatch, several, encoder):
    monkeypatch.setattr(first_job, "model_folder", Path)
    monkeypatch.setattr(first_sweep, "_step_seconds", lambda tokens, max_tokens: 0.2)
    rows = [
        [f"{text} {i}", ";".join(classes) if several else classes[0]]
        for i in range(2)
        for _, text, classes in ROWS
    ]
    starter, job = begun(["text", "tags" if several else "label"], rows)
    assert job.encoder.name == encoder
    if several:
        assert job.train.epochs == 24
        assert read_yaml(starter.files[1])["space"]["train.epochs"] == {"choice": [12, 16, 24]}


@pytest.mark.parametrize(
    ("several", "fewest", "encoder"),
    [(False, 100, "transformer"), (False, 800, "features"), (True, 100, "features")],
)
def test_long_texts_of_one_label_are_fine_tuned_if_they_are_enough(
    begun, monkeypatch, several, fewest, encoder
):
    monkeypatch.setattr(first_job, "model_folder", Path)
    monkeypatch.setattr(first_sweep, "_step_seconds", lambda tokens, max_tokens: 0.2)
    monkeypatch.setattr(first_sweep, "FEWEST_TUNED_LONG", fewest)
    rows = [
        [" ".join([text] * 30), ";".join(classes) if several else classes[0]] for _, text, classes in ROWS
    ]
    header = ["text", "tags" if several else "label"]
    starter, job = begun(header, rows, budget="4h")
    assert job.encoder.name == encoder
    assert encoder == "features" or job.train.epochs == first_sweep.LEAST_EPOCHS
    assert any("fine-tuned, which reads 256 tokens" in rule for rule in starter.rules) == (
        encoder != "features"
    )
    starter, job = begun(header, rows, budget="20s", to="quick")
    assert job.encoder.name == "features"
    assert any(rule.startswith("fine-tuning MiniLM: with --budget") for rule in starter.rules) == (
        encoder != "features"
    )


def test_a_step_is_timed_on_texts_of_the_given_lengths(models, monkeypatch):
    batches = []

    def states(network, ids, mask):
        batches.append(mask.sum(1).tolist())
        return token_states(network, ids, mask)

    monkeypatch.setattr(first_job, "MODEL", str(models["bert"]))
    monkeypatch.setattr(first_sweep, "token_states", states)
    threads = torch.get_num_threads()
    assert 0 < first_sweep._step_seconds(5, 12) < 60
    assert torch.get_num_threads() == threads
    for lengths in batches:
        assert len(lengths) == first_sweep.BATCH
        assert (min(lengths), max(lengths)) == (1, 12)
        assert sum(lengths) / len(lengths) == pytest.approx(6.5, abs=0.5)


@pytest.mark.parametrize(("most", "ensemble"), [(500_000, "text_svm"), (20, None)])
def test_a_network_on_terms_is_averaged_with_an_svm_where_that_takes_minutes(
    begun, monkeypatch, most, ensemble
):
    monkeypatch.setattr(first_job, "MOST_MODELS", most)
    starter, job = begun(["text", "label"], [[text, classes[0]] for _, text, classes in ROWS])
    assert job.evaluation.ensemble == ensemble
    assert any(rule.startswith("ensemble: ") for rule in starter.rules) == (ensemble is not None)


def test_what_the_table_does_not_tell_is_asked_and_nothing_is_replaced(begun):
    rows = [[text, classes[0], "good" if i % 3 else "bad"] for i, (_, text, classes) in enumerate(ROWS)]
    header = ["text", "style", "mood"]
    _, job = begun(header, rows, ask=lambda question, answers, default: "mood")
    assert job.objective.classifier.labels == "mood"
    with pytest.raises(UserError, match=r"job.yaml.*already exists"):
        begun(header, rows, "style")


def test_names_and_encodings_of_files(tmp_path):
    lines = "\n".join(["Käse;label", *(f"Brot {i} und Käse und mehr;{'ab'[i % 2]}" for i in range(120))])
    for name, encoding, encoding_option in (
        ("mein käse (1)", "utf-16", "utf-8-sig"),
        ("b", "cp1252", "cp1252"),
    ):
        file = tmp_path / f"{name}.csv"
        file.write_bytes(lines.encode(encoding))
        _, job = started(tmp_path / name, file, UserOptions(encoding=encoding_option))
        assert job.data.options["text"] == "Käse"
        assert job.experiment in ("mein_k_se_1", "b")


def test_a_group_stays_in_one_split(begun, tmp_path):
    rows = [[text, classes[0], f"p{i // 4}"] for i, (_, text, classes) in enumerate(ROWS)]
    begun(["text", "genre", "patient"], rows, "genre")
    _, job = started(tmp_path / "two", tmp_path / "in.csv", UserOptions(group="patient"))
    assert job.data.options["group"] == "patient"


@pytest.mark.parametrize("uri", [None, "https://me:secret@lab.example"])
def test_the_readme_ends_with_how_the_best_model_is_served(tmp_path, monkeypatch, uri):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    starter, job = started(tmp_path / "out", text_dataset(tmp_path / "it"))
    commands = starter.files[2].read_text().split("```")[1].split("\n")
    store = "" if uri else f"MLFLOW_TRACKING_URI=sqlite:///{tmp_path}/home/mlflow.db "
    command = f"{store}mlflow models serve -m models:/{job.experiment}@best --env-manager local --port 5001"
    assert commands[-2] == command


def test_prepared_sets_and_folders_of_images(tmp_path):
    _, job = started(tmp_path / "first", text_dataset(tmp_path / "tiny"))
    assert (job.data.path, job.objective.classifier.labels) == (str(tmp_path / "tiny"), "detail")
    _, job = started(tmp_path / "second", tmp_path / "tiny", UserOptions(labels=("ratings",)))
    assert job.objective.classifier.labels == "ratings"
    with pytest.raises(UserError, match="label spaces, of which one is predicted; found: ratings, detail"):
        started(tmp_path / "both", tmp_path / "tiny", UserOptions(labels=("ratings", "detail")))
    _, job = started(tmp_path / "third", tree_dataset(tmp_path / "tree"))
    assert job.objective.classifier.loss == "bce"
    for i in range(60):
        (tmp_path / "pictures" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (i, 4 * i, 0)).save(tmp_path / "pictures" / "ab"[i % 2] / f"{i}.png")
    _, job = started(tmp_path / "fourth", tmp_path / "pictures")
    encoder = "resnet18" if torch.cuda.is_available() else "cnn_image"
    assert (job.data.source, job.encoder.name, len(job.objective.heads)) == ("image_folder", encoder, 1)


def test_heads_of_aspects_and_levels_of_any_name_have_names_that_a_job_takes(tmp_path):
    aspects = ("Größe & Lage (1)", "C", "C#", "classifier", "?")
    rows = {
        "text": [f"text {i}" for i in range(40)],
        "split": ["train"] * 24 + ["validation"] * 8 + ["test"] * 8,
        "ratings": [[1 + (i + j) % 2 for j in range(5)] for i in range(40)],
    }
    space = LabelSpace(kind="aspects", aspects=aspects, scale=(1, 2))
    dataset(tmp_path / "data", "hotels", {"ratings": space}, rows)
    _, job = started(tmp_path / "out", tmp_path / "data")
    assert {name: head.labels for name, head in job.objective.heads.items()} == {
        "Gr_e_Lage_1": "ratings.Größe & Lage (1)", "C": "ratings.C", "C_2": "ratings.C#",
        "classifier_label": "ratings.classifier", "head": "ratings.?",
    }  # fmt: skip
