"""Tests that exported baselines predict as their runs did, without the data set and without pickles."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import text_dataset, tiny_job
from stored_runs import TASKS, exported

from mlcl.config import load_job
from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.testing.datasets import small_dataset
from mlcl.training.baselines import BASELINES
from mlcl.training.baselines.jobs import baseline_job, dataset_job
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("one_thread")

OF_MODALITY = {
    "text": ["majority", "tfidf_svm", "tfidf_knn", "text_logreg"],
    "image": ["pixels_logreg", "pixels_knn"],
    "vectors": ["column_logreg", "column_knn"],
}


def probabilities(home, split):
    table = pq.read_table(home / "run" / "embeddings.parquet").to_pandas()
    return np.stack(table[table["split"] == split]["probabilities"])


def check(job, home, metrics, folder):
    """Checks that the model in the folder has the run's probabilities and metrics, and returns it."""
    model, data = load_model(folder, "cpu"), Dataset.open(job.data.path)
    assert model.index.baseline == job.baseline
    contents = {"text": "texts", "vectors": "vectors", "image": "contents"}[model.index.modality]
    for split, name in (("validation", "val"), ("test", "test")):
        result = Labelling(model, Path(job.data.path), split).run(lambda _: None)
        split_metrics = {key: value for key, value in metrics.items() if key.startswith(f"{name}/")}
        assert result.metrics == pytest.approx(split_metrics, nan_ok=True)
    if contents != "contents":
        rows = list(getattr(data.split("test"), contents)())
        actual = model.predict_proba(rows).reshape(len(rows), -1)
        np.testing.assert_allclose(actual, probabilities(home, "test"), rtol=1e-5, atol=1e-6)
        assert len(model.predict(rows[:3], threshold=None).labels) == 3
        assert len(model.predict([]).labels) == 0
    return model


@pytest.mark.parametrize(
    ("modality", "name"), [(m, name) for m, names in OF_MODALITY.items() for name in names]
)
def test_an_exported_baseline_predicts_as_its_run(modality, name, tmp_path):
    data_folder = small_dataset(tmp_path / "data", modality)
    job = baseline_job(load_job(dataset_job(data_folder)), name)
    metrics, folder = exported(job, tmp_path)
    model = check(job, tmp_path, metrics, folder)
    assert list(model.index.predictors) == ["classifier"]
    assert {file.suffix for file in folder.rglob("*") if file.is_file()} <= {
        ".json", ".yaml", ".md", ".safetensors", ".npy",
    }  # fmt: skip
    assert f"The baseline `{name}` reads" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["tfidf_svm", "encoder_knn", "text_encoder_logreg"])
@pytest.mark.parametrize("task", TASKS)
def test_every_task_and_a_frozen_encoder(task, name, models, tmp_path):
    encoder = f"encoder={{name: transformer, model: {models['bert']}, max_length: 8}}"
    job = baseline_job(tiny_job(text_dataset(tmp_path / "data"), *TASKS[task], encoder), name)
    metrics, folder = exported(job, tmp_path)
    model = check(job, tmp_path, metrics, folder)
    assert model.index.baseline == name


def test_a_hierarchy_is_in_the_model(tmp_path):
    job = baseline_job(tiny_job(text_dataset(tmp_path / "data")), "tfidf_hierarchy")
    metrics, folder = exported(job, tmp_path)
    assert metrics["test/accuracy"] > 0.9
    check(job, tmp_path, metrics, folder)


@pytest.fixture
def made(tmp_path):
    job = baseline_job(load_job(dataset_job(small_dataset(tmp_path / "data", "text"))), "tfidf_svm")
    return job, *exported(job, tmp_path)


def test_it_is_fitted_again_where_the_cache_is_gone(made, tmp_path):
    job, metrics, folder = made
    shutil.rmtree(tmp_path / "cache")
    write_export(tmp_path / "again", tmp_path / "run", JobData.of(job, tmp_path), {})
    check(job, tmp_path, metrics, tmp_path / "again")
    expected, actual = (
        {file.name: file.read_bytes() for file in model_folder.rglob("*.safetensors")}
        for model_folder in (folder, tmp_path / "again")
    )
    assert expected
    assert actual == expected


def test_what_is_no_baseline_of_the_folder_is_refused(made, tmp_path):
    job, _, folder = made
    with pytest.raises(UserError, match="a baseline has no network to write; found: onnx"):
        write_export(tmp_path / "onnx", tmp_path / "run", JobData.of(job, tmp_path), {}, formats=["onnx"])
    index = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**index, "baseline": "tfidf_knn"}))
    with pytest.raises(UserError, match="not the job's baseline; found: tfidf_knn; allowed: tfidf_svm"):
        load_model(folder)
    (folder / "model.json").write_text(json.dumps({**index, "baseline": None}))
    with pytest.raises(UserError, match=r"a file is not listed.*datastore\.parquet"):
        load_model(folder)


def test_a_plugin_that_keeps_no_tensors_is_refused(made, tmp_path, monkeypatch):
    job = made[0]
    plugin = replace(BASELINES["tfidf_svm"], restore=None)
    monkeypatch.setattr("mlcl.training.export.baseline.BASELINES", {"tfidf_svm": plugin})
    with pytest.raises(UserError, match="cannot be exported") as error:
        write_export(tmp_path / "own", tmp_path / "run", JobData.of(job, tmp_path), {})
    assert error.value.key == "baseline"
    assert not (tmp_path / "own").exists()
