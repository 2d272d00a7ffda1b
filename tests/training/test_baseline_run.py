"""Tests of a baseline as an experiment: its metrics and files, one fit for all seeds, and refusals."""

import json
import math
import shutil
from importlib.util import find_spec

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from builders import dataset, tiny_job
from safetensors.torch import load_file, save_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from stored_runs import TEXT_BASELINES, run

from mlcl.config import dump_job, job_hash, load_job
from mlcl.data import Dataset, LabelSpace
from mlcl.errors import UserError
from mlcl.models.encoders.features import TransformerInput
from mlcl.testing.datasets import small_dataset
from mlcl.training.baseline_fits import validation_score
from mlcl.training.baselines import BASELINES
from mlcl.training.baselines.jobs import baseline_job, dataset_job, fitting_baselines, inputs_of
from mlcl.training.events import Stopped
from mlcl.training.features.cache import EXTRACTORS
from mlcl.training.features.extractor import precision
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun


@pytest.fixture
def texts(tmp_path):
    return small_dataset(tmp_path / "texts", "text")


@pytest.fixture
def job(texts):
    return baseline_job(load_job(dataset_job(texts)), "tfidf_svm")


def without_times(metrics):
    return {name: value for name, value in metrics.items() if "seconds" not in name}


def test_a_baseline_leaves_the_figures_and_files_of_a_run(job, tmp_path):
    _, metrics = run(job, tmp_path, tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert without_times(metrics) == result
    assert {"val/micro_f1", "test/macro_f1", "baseline/C"} <= result.keys()
    table = pq.read_table(tmp_path / "run" / "embeddings.parquet")
    assert table["split"].to_pylist() == ["train"] * 24 + ["validation"] * 12 + ["test"] * 12
    assert table["embedding"].null_count == len(table)
    assert table["probabilities"].null_count == 24
    assert {file.name for file in (tmp_path / "run" / "model").iterdir()} == {
        "job.yaml", "dataset.json", "decisions.json",
    }  # fmt: skip
    with pytest.raises(UserError, match="a baseline has no embeddings"):
        StoredRun.read(tmp_path / "run", JobData.of(job, tmp_path))


def test_it_is_fitted_to_the_training_rows_alone(job, texts, tmp_path):
    run(job, tmp_path, tmp_path / "run")
    best_c = json.loads((tmp_path / "run" / "result.json").read_text())["baseline/C"]
    data = Dataset.open(texts)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)
    x = words.fit_transform(data.split("train").texts()).astype(float)
    y = data.split("train").labels("tags").dense().numpy()
    machines = [LinearSVC(C=best_c, tol=0.1, random_state=0).fit(x, column) for column in y.T]
    test = words.transform(data.split("test").texts()).astype(float)
    score = np.stack([machine.decision_function(test) for machine in machines], axis=1)
    table = pq.read_table(tmp_path / "run" / "embeddings.parquet")
    probabilities = np.array(table["probabilities"].to_pylist()[-12:])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-score)), atol=1e-5)


def test_the_runs_of_all_seeds_share_one_fit(job, tmp_path, monkeypatch):
    first_metrics = run(job, tmp_path, tmp_path / "one")[1]
    monkeypatch.setattr(type(BASELINES["tfidf_svm"]), "fit", property(lambda _: 1 / 0), raising=False)
    other_job = load_job(dump_job(job), {"train.seed": 7, "train.lr": 0.5})
    assert job_hash(other_job) != job_hash(job)
    assert without_times(run(other_job, tmp_path, tmp_path / "two")[1]) == without_times(first_metrics)
    (cache_file,) = (tmp_path / "cache" / "baselines").glob("*.npz")
    cache_file.write_bytes(cache_file.read_bytes()[:20])
    with pytest.raises((ZeroDivisionError, AttributeError, TypeError)):  # a damaged file means a new fit
        run(other_job, tmp_path, tmp_path / "three")
    for overrides in ({"data.subset": {"n": 12}}, {"evaluation.metric": "val/macro_f1"}):
        with pytest.raises((ZeroDivisionError, AttributeError, TypeError)):
            run(load_job(dump_job(job), overrides), tmp_path, tmp_path / "three")


def test_the_test_split_may_stay_unread(job, tmp_path, monkeypatch):
    split_names = []
    original = Dataset.split
    monkeypatch.setattr(
        Dataset, "split", lambda self, name: (split_names.append(name), original(self, name))[1]
    )
    metrics = run(job, tmp_path, tmp_path / "run", test=False)[1]
    assert "test" not in split_names
    assert not [name for name in metrics if name.startswith("test/")]


def test_a_stop_leaves_nothing_half_done(job, tmp_path):
    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "run", should_stop=lambda: True)
    assert not list((tmp_path / "cache" / "baselines").glob("*.npz*"))
    assert run(job, tmp_path, tmp_path / "run")[1]["test/micro_f1"] > 0.5


def test_jobs_that_differ_in_their_losses_have_the_same_baseline(tiny):
    job = tiny_job(tiny, epochs=2)
    other_job = load_job(dump_job(job), {"objective.heads": {}, "objective.classifier.weight": 1.0})
    assert job_hash(baseline_job(job, "majority")) == job_hash(baseline_job(other_job, "majority"))


def test_a_baseline_needs_no_batches_of_a_hierarchy(tiny, tmp_path):
    job = baseline_job(tiny_job(tiny, "train.sampler=hierarchical"), "majority")
    assert JobData.of(job, tmp_path).job.train.sampler.name == "uniform"


@pytest.mark.parametrize(
    ("modality", "names"),
    [
        ("text", [*TEXT_BASELINES, "words_logreg"]),
        ("image", ["majority", "pixels_knn", "pixels_logreg"]),
        ("vectors", ["column_knn", "column_logreg", "majority"]),
    ],
)
def test_every_baseline_that_fits_is_run(tmp_path, modality, names):
    folder = small_dataset(tmp_path / modality, modality)
    job = load_job(dataset_job(folder))
    info = Dataset.open(folder).info
    fitting, reasons = fitting_baselines(job, info)
    if modality == "text" and find_spec("wordllama") is None:
        assert "mlcl[words]" in reasons.pop("words_logreg")
        names = names[:-1]
    assert fitting == names
    encoder_names = ["text_encoder_logreg", "text_encoder_svm"] if modality == "text" else []
    assert reasons.keys() == {"encoder_knn", "encoder_logreg", *encoder_names}
    assert fitting_baselines(job, info, in_sweeps=True)[0] == [
        name for name in names if not name.startswith(("text", "words"))
    ]
    assert set(reasons.values()) == {f"the job's encoder, {job.encoder.name}, is not a pretrained one"}
    for name in fitting:
        assert run(baseline_job(job, name), tmp_path, tmp_path / name)[1]["test/micro_auc"] > 0.4


@pytest.mark.parametrize(
    ("inputs", "more"),
    [(["tfidf"], []), (["tfidf", "characters"], ["text_logreg", "text_svm"]), (["characters"], [])],
)
def test_sweeps_fit_the_baselines_that_read_what_the_network_reads(texts, inputs, more):
    tree = {**dataset_job(texts), "encoder": {"name": "features", "inputs": inputs}}
    names, _ = fitting_baselines(load_job(tree), Dataset.open(texts).info, in_sweeps=True)
    assert [name for name in names if name.startswith(("text", "words"))] == more


def test_a_frozen_encoder_is_read(models, texts, tmp_path):
    tree = dataset_job(texts)
    model = {"model": str(models["bert"]), "max_length": 8}
    tree["encoder"] = {"name": "transformer", **model}
    job = load_job(tree)
    features_job = load_job(
        {**tree, "encoder": {"name": "features", "inputs": ["transformer"], "transformer": model}}
    )
    fitting, reasons = fitting_baselines(job, Dataset.open(texts).info)
    assert reasons.keys() <= {"words_logreg"}  # the package of its vectors may be missing
    for name in ("encoder_knn", "encoder_logreg"):
        assert name in fitting
        metrics = run(baseline_job(job, name), tmp_path, tmp_path / name)[1]
        assert metrics["test/micro_auc"] > 0.4
        features_metrics = run(baseline_job(features_job, name), tmp_path, tmp_path / f"{name} inside")[1]
        assert without_times(features_metrics) == without_times(metrics)


def test_other_weights_of_a_frozen_encoder_are_fitted_anew(models, texts, tmp_path):
    model_folder = shutil.copytree(models["bert"], tmp_path / "bert")
    tree = dataset_job(texts) | {
        "encoder": {"name": "transformer", "model": str(model_folder), "max_length": 8}
    }
    job, cache_folder = baseline_job(load_job(tree), "encoder_knn"), tmp_path / "cache" / "baselines"
    for _ in range(2):
        run(job, tmp_path, tmp_path / "run")
        assert len([*cache_folder.glob("*.npz")]) == 1
    weights = model_folder / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    run(job, tmp_path, tmp_path / "run")
    assert len([*cache_folder.glob("*.npz")]) == 2


def test_a_frozen_encoder_reads_no_more_than_a_chunk_of_plm_icd(texts):
    encoder = {"name": "plm_icd", "model": "folder", "max_length": 512, "chunk_length": 64}
    job = load_job(dataset_job(texts) | {"encoder": encoder})
    assert inputs_of(BASELINES["encoder_knn"], job)["encoder"][1].max_length == 64


@pytest.mark.parametrize(
    ("encoder", "reason"),
    [
        ({"stem": "imagenet"}, None),
        ({}, "reads images by the stem imagenet, the job's encoder by the stem cifar"),
        (
            {"stem": "imagenet", "stretch": True},
            "reads the centres of images, the job's encoder reads them whole: encoder.stretch",
        ),
    ],
)
def test_a_frozen_encoder_that_reads_images_otherwise_is_left_out(tmp_path, encoder, reason):
    folder = small_dataset(tmp_path / "images", "image")
    encoder = {"name": "resnet18", "weights": "file", **encoder}
    job = load_job(dataset_job(folder) | {"encoder": encoder})
    fitting, reasons = fitting_baselines(job, Dataset.open(folder).info)
    names = ["encoder_knn", "encoder_logreg"]
    assert [name for name in fitting if name in names] == ([] if reason else names)
    assert reasons == (dict.fromkeys(names, reason) if reason else {})


def test_a_metric_without_a_value_on_validation_has_no_score(tmp_path):
    rows = {"text": list("abcd"), "split": ["train", "train", "validation", "test"]}
    rows["ratings"] = [[1, 2], [1, 2], [1, 0], [1, 0]]  # a rating of 0 is unknown
    ratings = LabelSpace(kind="aspects", aspects=("a", "b"), scale=(1, 2))
    folder = dataset(tmp_path / "set", "two", {"ratings": ratings}, rows)
    job = load_job(dataset_job(folder), ["evaluation.metric=val/accuracy_b"])
    score = validation_score(JobData.of(baseline_job(job, "majority"), tmp_path))
    assert math.isnan(score(torch.full((1, 2, 2), 0.5)))


def test_words_characters_and_an_encoder_are_read_together(models, texts, tmp_path):
    tree = dataset_job(texts)
    tree["encoder"] = {"name": "transformer", "model": str(models["bert"]), "max_length": 8}
    job, data = load_job(tree), Dataset.open(texts)
    encoded = ["encoder_knn", "encoder_logreg", "text_encoder_logreg", "text_encoder_svm"]
    assert set(encoded) <= set(fitting_baselines(job, data.info, in_sweeps=True)[0])
    run(baseline_job(job, "text_encoder_svm"), tmp_path, tmp_path / "run")
    best_c = json.loads((tmp_path / "run" / "result.json").read_text())["baseline/C"]
    train_texts, test_texts = ([*data.split(name).texts()] for name in ("train", "test"))
    options = {"sublinear_tf": True, "dtype": np.float32}
    vectorizers = [
        TfidfVectorizer(ngram_range=(1, 2), **options),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **options),
    ]
    cpu = torch.device("cpu")
    encode = EXTRACTORS["transformer"].fit(
        TransformerInput(model=str(models["bert"]), max_length=8),
        None,
        cpu,
        precision(cpu, tmp_path / "cache"),
    )
    x_train = np.hstack(
        [
            *(vectorizer.fit_transform(train_texts).toarray() for vectorizer in vectorizers),
            normalize(encode(train_texts)),
        ]
    )
    x_test = np.hstack(
        [
            *(vectorizer.transform(test_texts).toarray() for vectorizer in vectorizers),
            normalize(encode(test_texts)),
        ]
    )
    y = data.split("train").labels("tags").dense().numpy()
    machines = [LinearSVC(C=best_c, tol=1e-6, random_state=0).fit(x_train, column) for column in y.T]
    score = np.stack([machine.decision_function(x_test) for machine in machines], axis=1)
    table = pq.read_table(tmp_path / "run" / "embeddings.parquet")
    probabilities = np.array(table["probabilities"].to_pylist()[-12:])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-score)), atol=2e-2)


def test_what_does_not_fit_is_refused(texts, job):
    with pytest.raises(UserError, match="did you mean tfidf_svm") as name_error:
        load_job(dump_job(job), {"baseline": "tfidf_smv"})
    assert name_error.value.key == "baseline"
    for name, problem in (("pixels_knn", "reads images"), ("encoder_knn", "is not a pretrained one")):
        with pytest.raises(UserError, match=problem) as error:
            JobData.of(baseline_job(job, name), texts.parent)
        assert error.value.key == "baseline"


def test_one_model_for_each_of_very_many_classes_is_not_fitted_unasked(texts, monkeypatch):
    monkeypatch.setattr("mlcl.training.baselines.jobs.MOST_MODELS", 50)
    names, reasons = fitting_baselines(load_job(dataset_job(texts)), Dataset.open(texts).info)
    assert [name for name in names if name != "words_logreg"] == ["majority", "tfidf_knn"]
    assert reasons["tfidf_svm"] == "one model for each of 4 classes takes too long"


def test_of_several_label_spaces_one_must_be_named(tiny):
    tree = dataset_job(tiny, "topic")
    assert tree["objective"]["classifier"]["labels"] == "topic"
    assert yaml.safe_load(yaml.safe_dump(tree)) == tree


def test_the_finest_level_of_two_hierarchies_is_one_label_space(tmp_path):
    names = ("place", "topic", "detail")
    spaces = dict.fromkeys(names, ("x", "y"))
    for name in ("place", "topic"):
        spaces[f"by_{name}"] = LabelSpace(kind="hierarchy", levels=(name, "detail"))
    rows = {"text": ["one", "two"], "split": ["train"] * 2, **{name: [0, 1] for name in names}}
    tree = dataset_job(dataset(tmp_path / "data", "two", spaces, rows))
    assert tree["objective"]["classifier"]["labels"] == "detail"
