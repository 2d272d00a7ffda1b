"""Tests that exported models predict exactly what the run evaluated, from their folder alone."""

import functools
import itertools
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from builders import text_dataset, tiny_job, tree_dataset, unknown_dataset
from stored_runs import UNKNOWN, exported
from tiny_models import tiny_model

import mlcl
from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.service.tables.plan import run_metrics
from mlcl.testing.datasets import small_dataset
from mlcl.training.export import load_model
from mlcl.training.export.hub import OWN
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

pytestmark = pytest.mark.usefixtures("one_thread")

LORA = "lora: {r: 2, alpha: 4, dropout: 0.1}"
TAGS = (
    "objective.heads={tags: {loss: simdis, labels: tags, weight: 0.3, projection: {dim: 8}}}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)
RATINGS = ("objective.heads={}", "objective.classifier.labels=ratings")
PROBE = "evaluation.probe={epochs: 10, lr: [0.01, 0.1], weight_decay: [0.0]}"
TWO_PHASES = ("objective.classifier.weight=0", "objective.heads.detail.weight=0.5", PROBE)
FEATURES = (
    "encoder={name: features, inputs: [tfidf, transformer], out: 6, "
    "transformer: {model: =bert, max_length: 8}}"
)
KNN = ("evaluation.knn.k=3", "evaluation.knn.lambda=0.7", "evaluation.knn.temperature=2.0")
CASES = {
    "classes": (),
    "labels": TAGS,
    "aspects": RATINGS,
    "two phases": TWO_PHASES,
    "two phases, labels": (*TAGS, "objective.classifier.weight=0", PROBE),
    "two phases, aspects": ("objective.classifier={loss: cross_entropy, labels: ratings, weight: 0}", PROBE,
        "objective.heads={jac: {loss: jaccard, labels: ratings, weight: 1, projection: {dim: 8}}}"),
    "probed besides": (PROBE,),
    "guided": ("objective.heads={}", "objective.classifier.loss=guided"),
    "no neighbours": ("evaluation.knn=null",),
    "other validation rows": ("data.validation_seed=3",),
    "subset and noise": ("data.subset.n=20", "data.label_noise.rate=0.3"),
    "long texts": ("encoder.max_length=2",),
    "half precision": ("train.precision=bf16",),
    "a linear path": ("objective.heads={}", FEATURES),
    "a linear path, guided": ("objective.heads={}", "objective.classifier.loss=guided", FEATURES),
    "a linear path, aspects": (*RATINGS, FEATURES),
    "a linear path, labels": (*TAGS, FEATURES),
    "a linear path, two phases": (*TWO_PHASES, FEATURES),
    "logits of its own, two phases": (*TAGS, "objective.classifier.weight=0", PROBE,
        f"encoder={{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, {LORA}}}"),
    "groups of metrics": ("evaluation.metrics=[bands, hierarchy, retrieval, clustering]",),
    "groups of metrics, aspects": (*RATINGS, "evaluation.metrics=[bands, retrieval]"),
    "groups of metrics, labels": (*TAGS, "evaluation.bands=[8, 7]", "evaluation.threshold=0.5",
        "evaluation.metrics=[bands, calibration, hierarchy, ranking, retrieval, clustering]",
        "evaluation.metric=val/tail_micro_f1"),
    "another setting": KNN,
    "another setting, labels": (*TAGS, *KNN),
    "another setting, aspects": (*RATINGS, *KNN),
    "one threshold": (*TAGS, "evaluation.threshold=global"),
    "a threshold a label": (*TAGS, "evaluation.threshold=per_label"),
    "the most probable": (*TAGS, "evaluation.threshold=top_k"),
    "unknown": UNKNOWN,
    "unknown, asl": (*UNKNOWN, "objective.classifier.loss=asl", "evaluation.threshold=global"),
    "unknown, two phases": (*UNKNOWN, "objective.classifier.weight=0", "evaluation.threshold=top_k"),
    "unknown, noise and subset": (*UNKNOWN, "objective.classifier.pos_weight=balanced",
        "data.label_noise.rate=0.2", "data.subset.n=30"),
    "ensemble": ("evaluation.ensemble=tfidf_svm",),
    "ensemble, labels": (*TAGS, *KNN, "evaluation.ensemble=text_logreg"),
    "ensemble, aspects": (*RATINGS, "evaluation.ensemble=tfidf_logreg"),
    "ensemble, two phases": (*TWO_PHASES, "evaluation.ensemble=tfidf_svm"),
    "ensemble, no neighbours": (*TAGS, "evaluation.ensemble=tfidf_knn", "evaluation.knn=null"),
    "ensemble, shared inputs": (*TAGS, FEATURES, "evaluation.ensemble=text_encoder_svm"),
    "ensemble, other validation rows": ("data.validation_seed=3", "evaluation.ensemble=tfidf_svm"),
    "unknown, ensemble": (*UNKNOWN, PROBE, "evaluation.ensemble=tfidf_logreg"),
    "unknown, groups": (*UNKNOWN, "evaluation.metrics=[ranking, retrieval, bands]", PROBE),
}  # fmt: skip
DATA = {"groups of metrics, labels": "tree"} | {name: "findings" for name in CASES if "unknown" in name}
"""The data sets of cases that do not use `tiny`."""


@pytest.fixture(scope="module")
def simple(tiny, tmp_path_factory):
    return exported(tiny_job(tiny, epochs=6), tmp_path_factory.mktemp("simple"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return tree_dataset(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return unknown_dataset(tmp_path_factory.mktemp("unknown") / "data")


@pytest.fixture(scope="module")
def export(request, models, tmp_path_factory):
    """Returns a function that gives a case's job, home with the run, metrics and exported folder."""

    @functools.cache
    def export(case):
        overrides = [text.replace("=bert", str(models["bert"])) for text in CASES[case]]
        overrides = [text.replace("=roberta", str(models["roberta"])) for text in overrides]
        job = tiny_job(request.getfixturevalue(DATA.get(case, "tiny")), *overrides, epochs=2)
        home = tmp_path_factory.mktemp("case")
        return job, home, *exported(job, home)

    return export


@pytest.mark.parametrize("case", CASES)
def test_a_table_a_stored_run_and_an_exported_model_have_the_metrics_of_the_run(case, export):
    """Tests that the exported model has exactly the metrics and the probabilities of the run."""
    job, home, metrics, folder = export(case)
    job_data, data = JobData.of(job, home), Path(job.data.path)
    assert {name for name in metrics if "val/" in name or "test/" in name} == set(run_metrics(job_data))
    model = load_model(folder, "cpu")
    if job.evaluation.knn is not None:
        knn, run = job.evaluation.knn, StoredRun.read(home / "run", job_data)
        knn_metrics = run.metrics(Setting(knn.k, knn.lambda_, knn.temperature))
        assert knn_metrics == pytest.approx(
            {k: metrics[k] for k in metrics if k.startswith("knn/")}, nan_ok=True
        )
    if list(model.index.predictors)[:2] == ["classifier", "knn"] and job.evaluation.threshold == 0.5:
        score = run.metrics(Setting(5, 0.0, 1.0))[f"knn/test/{model.index.metric}"]
        assert score == metrics[f"test/{model.index.metric}"]
    table = pq.read_table(home / "run" / "embeddings.parquet")
    base = "ensemble" if "ensemble" in model.index.predictors else next(iter(model.index.predictors))
    for split, name in (("validation", "val"), ("test", "test")):
        result = Labelling(model, data, split).run(lambda _: None)
        split_metrics = {key: value for key, value in metrics.items() if f"{name}/" in key}
        assert result.metrics == pytest.approx(split_metrics, rel=0, abs=0, nan_ok=True)
        batches = []
        Labelling(model, data, split, predictor=base, probabilities=True).run(batches.append)
        rows = table.filter(pc.equal(table["split"], split))
        assert batches[0]["id"] == rows["id"].to_pylist()
        probabilities = np.array(batches[0]["probabilities"]).reshape(len(rows), -1)
        np.testing.assert_array_equal(probabilities, np.array(rows["probabilities"].to_pylist()))
    scores = {
        predictor: metrics[f"{model.index.prefix(predictor)}val/{model.index.metric}"]
        for predictor in model.index.predictors
    }
    assert scores[model.index.best] == max(scores.values())
    expected = {"two phases": ["probe", "knn", "knn_best"], "no neighbours": ["classifier"]}
    expected["probed besides"] = ["classifier", *expected["two phases"]]
    expected["ensemble, no neighbours"] = ["classifier", "ensemble"]
    expected["ensemble, two phases"] = ["probe", "ensemble", "knn", "knn_best"]
    assert list(model.index.predictors) == expected.get(case, list(model.index.predictors))
    assert ("ensemble" in model.index.predictors) == ("evaluation.ensemble" in str(CASES[case]))
    if FEATURES in CASES[case]:  # the folder contains the features, so no other file is needed
        for file in ("tfidf/terms.json", "tfidf/idf.npy", "transformer/weights.safetensors"):
            assert (folder / "features" / file).is_file()


@pytest.mark.parametrize(
    "case", ["classes", "labels", "aspects", "ensemble", "ensemble, shared inputs", "a linear path, labels"]
)
def test_a_row_is_predicted_alike_in_any_company(case, export, tiny):
    model, texts = load_model(export(case)[3], "cpu"), Dataset.open(tiny).split("test").texts()
    for predictor in model.index.predictors:
        predictions = model.predict(texts, predictor=predictor)
        order = np.random.default_rng(0).permutation(len(texts))
        permuted = model.predict([texts[i] for i in order], predictor=predictor, batch_size=5)
        assert permuted.labels == [predictions.labels[i] for i in order]
        np.testing.assert_allclose(permuted.probabilities, predictions.probabilities[order], atol=1e-6)
        prediction = model.predict(texts[3:4], predictor=predictor)
        assert prediction.labels == predictions.labels[3:4]
        assert len(model.predict([], predictor=predictor)) == 0


def test_names_and_probabilities_of_classes(simple):
    state = torch.get_rng_state()
    model = mlcl.load_model(simple[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert model.classes_ == ("ball", "run", "vote", "law")
    predictions = model.predict(["vote noise1 noise2", "ball noise0", ""])
    assert predictions.labels[:2] == ["vote", "ball"]
    assert predictions.columns["label.topic"][:2] == ["state", "sport"]
    assert predictions.probabilities.shape == (3, 4)
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1, atol=1e-6)
    assert predictions.columns["probability"] == predictions.probabilities.max(1).tolist()
    np.testing.assert_array_equal(
        model.predict_proba(["vote noise1 noise2", "ball noise0", ""]), predictions.probabilities
    )


def test_ratings_by_aspect(tiny, tmp_path):
    _, folder = exported(tiny_job(tiny, *RATINGS, epochs=8), tmp_path)
    predictions = load_model(folder, "cpu").predict(["vote noise1"])
    assert predictions.labels[0]["word"] == "3"
    assert predictions.columns["label.word"] == ["3"]
    assert predictions.probabilities.shape == (1, 2, 4)


def test_images_by_path_and_by_bytes(tmp_path):
    data = small_dataset(tmp_path / "data", "image")
    encoder = "encoder={name: cnn_image, width: 4, blocks: 2, image_size: 8}"
    _, folder = exported(tiny_job(data, *TAGS, encoder, epochs=1, batch_size=8), tmp_path)
    model, image = load_model(folder, "cpu"), next(iter(Dataset.open(data).split("test").images()))
    (tmp_path / "a.png").write_bytes(image)
    probabilities = model.predict_proba([tmp_path / "a.png", str(tmp_path / "a.png")])
    np.testing.assert_array_equal(probabilities, model.predict_proba([image] * 2))


def test_the_datastore_holds_the_rows_that_were_trained_on(export):
    job, home, _, folder = export("subset and noise")
    job_data, table = JobData.of(job, home), pq.read_table(folder / "datastore.parquet")
    assert table["id"].to_pylist() == job_data.train.ids
    assert table["label"].to_pylist() == job_data.targets(job_data.train).tolist()


def test_files_that_not_every_model_has_leave_the_hub_with_the_next_push(export):
    folder = export("ensemble, shared inputs")[3]
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert {name.split("/")[0] for name in names} >= {"features", "ensemble", "datastore.parquet"}
    kept_names = {name for name in names if not any(fnmatch(name, pattern) for pattern in OWN)}
    assert kept_names == {"weights.safetensors", "model.json", "job.yaml", "README.md"}


def test_all_weights_have_the_mode_of_the_job_file(export):
    folder = export("ensemble, shared inputs")[3]
    weights = list(folder.rglob("*.safetensors"))
    assert len(weights) == 3
    assert {file.stat().st_mode for file in weights} == {(folder / "job.yaml").stat().st_mode}


def test_nothing_is_pickled_and_nothing_partial_is_left(simple):
    _, folder = simple
    names = {file.name for file in folder.iterdir()}
    files = {"weights.safetensors", "datastore.parquet", "tokenizer.json", "job.yaml"}
    assert names == {*files, "model.json", "README.md"}
    assert [file.name for file in folder.parent.iterdir() if "partial" in file.name] == []
    assert 'mlcl.load_model("model")' in (folder / "README.md").read_text()
    assert "a \\| run" in (folder / "README.md").read_text()


ALONE = """
import socket, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "mlflow", "optuna", "transformers"):
            raise ImportError(f"{name} is not to be had")

def no_network(*arguments):
    raise OSError("no network")

sys.meta_path.insert(0, Refused())
socket.socket.connect = no_network
import mlcl
assert "torch" not in sys.modules
print(mlcl.load_model(sys.argv[1]).predict(["vote noise1"]).labels)
"""


def test_it_opens_without_ray_mlflow_optuna_and_network(simple, root):
    process = subprocess.run(
        [sys.executable, "-c", ALONE, str(simple[1])], capture_output=True, text=True, cwd=root, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "['vote']\n"


def test_a_pretrained_encoder_opens_without_its_first_weights(tmp_path, models):
    """Tests that a model opens after its pretrained weights and its data were deleted."""
    base = tiny_model(tmp_path / "base", "bert")
    data = text_dataset(tmp_path / "data")
    job = tiny_job(data, f"encoder={{name: transformer, model: {base}, max_length: 8, {LORA}}}", epochs=1)
    _, folder = exported(job, tmp_path)
    texts = Dataset.open(data).split("test").texts()
    expected = load_model(folder, "cpu").predict_proba(texts)
    for file in itertools.chain(base.iterdir(), data.iterdir()):
        file.unlink()
    np.testing.assert_array_equal(load_model(folder, "cpu").predict_proba(texts), expected)
    assert str(tmp_path) not in (folder / "config.json").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(simple):
    with pytest.raises(UserError, match="no GPU is visible"):
        load_model(simple[1], "cuda")


@pytest.mark.gpu
def test_a_gpu_predicts_as_a_cpu_does(simple, tiny):
    texts = Dataset.open(tiny).split("test").texts()
    cpu, gpu = (load_model(simple[1], device).predict(texts) for device in ("cpu", "cuda"))
    assert gpu.labels == cpu.labels
    np.testing.assert_allclose(gpu.probabilities, cpu.probabilities, atol=1e-4)
