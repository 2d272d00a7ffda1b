"""Tests of frozen inputs in trainings: the rows they are fitted to, exported vectors, and refusals."""

import json

import pytest
from builders import text_dataset, tiny_job
from stored_runs import TAGS, trained

from mlcl.errors import UserError
from mlcl.testing.datasets import small_dataset
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("one_thread")

BOTH = """
{{name: features, inputs: [tfidf, transformer], out: 6, transformer: {{model: {bert}, max_length: 8}}}}
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return text_dataset(tmp_path_factory.mktemp("texts") / "tiny")


@pytest.fixture
def make_job(texts, models):
    return lambda *overrides: tiny_job(
        texts, f"encoder={BOTH.format(bert=models['bert'])}", "train.epochs=2", *overrides, warmup=0.0
    )


def test_tfidf_is_fitted_to_the_rows_that_are_trained_on(make_job, tmp_path):
    subsets = [JobData.of(make_job(f"data.subset={{n: 12, seed: {seed}}}"), tmp_path) for seed in (0, 1)]
    noisy_data = JobData.of(
        make_job("data.subset={n: 12, seed: 0}", "data.label_noise={rate: 0.5}"), tmp_path
    )
    for job_data in (*subsets, noisy_data):
        job_data.features.rows(job_data.dataset.split("test"))
    descriptions = [
        json.loads(file.read_text()) for file in (tmp_path / "cache" / "features").glob("*/about.json")
    ]
    fitted = [
        description["fitted"]
        for description in descriptions
        if description["extractor"] == "tfidf" and "rows" not in description
    ]
    assert sorted(fitted) == sorted(subset.train.fingerprint for subset in subsets)
    assert sum(description["extractor"] == "transformer" for description in descriptions) == 1


def test_a_seed_of_the_validation_rows_changes_the_rows_that_are_trained_on_and_none_of_test(texts, tmp_path):
    stored_data, redrawn_data = (
        JobData.of(tiny_job(texts, *keys), tmp_path) for keys in ((), ("data.validation_seed=3",))
    )
    assert redrawn_data.fingerprint != stored_data.fingerprint
    assert redrawn_data.train.fingerprint != stored_data.train.fingerprint
    assert len(redrawn_data.train) == len(stored_data.train)
    assert redrawn_data.dataset.split("test").ids == stored_data.dataset.split("test").ids


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (["encoder.transformer.model=./none"], "encoder.transformer.model", "no such folder"),
        (["encoder.transformer.max_length=99"], "encoder.transformer.max_length", "more tokens"),
    ],
)
def test_what_is_not_there_is_refused_before_the_start(overrides, key, text, make_job, tmp_path):
    with pytest.raises(UserError, match=text) as error:
        JobData.of(make_job(*overrides), tmp_path)
    assert error.value.key == key


def test_an_exported_model_reads_vectors(tmp_path):
    data = small_dataset(tmp_path / "data", "vectors")
    encoder = "encoder={name: features, inputs: [column], out: 4}"
    _, job_data, _ = trained(data, tmp_path, encoder, *TAGS)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {"name": "a run"})
    model = load_model(tmp_path / "model", "cpu")
    predictions = model.predict(job_data.dataset.split("test").vectors())
    assert len(predictions) == 12
    for vectors in ([[0.0] * 5], [["a"] * 6], [[float("nan")] * 6], ["text"]):
        with pytest.raises(UserError, match=r"not a vector.* at row 0"):
            model.predict(vectors)
    table = tmp_path / "rows.csv"
    table.write_text('id,vectors\nx,"[1, 0, 0, 0, 0, 0]"\n')
    assert Labelling(model, table).run(lambda _: None).rows == 1
