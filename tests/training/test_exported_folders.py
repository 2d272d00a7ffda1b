"""Tests of folders of exported models: failed exports write nothing, and damaged folders are refused."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from builders import text_dataset, tiny_job
from safetensors import SafetensorError
from stored_runs import run

from mlcl.errors import UserError
from mlcl.training.export import load_model, model_writer, write_export
from mlcl.training.job_data import JobData


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    """Returns the folder of a finished run and its job's data."""
    home = tmp_path_factory.mktemp("run")
    return home / "run", run(tiny_job(tiny, epochs=2), home)[0]


@pytest.fixture
def folder(finished, tmp_path):
    """Returns a new export of the finished run, which a test may damage."""
    write_export(tmp_path / "model", *finished, {"run_id": "r1"})
    return tmp_path / "model"


DAMAGE = [
    ("weights.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "SHA-256 differs"),
    ("weights.safetensors", None, "a file of this model cannot be read"),
    ("model.json", (b'"version": 2', b'"version": 3'), "written by a newer mlcl; found: 3; allowed: up to 2"),
    ("model.json", lambda _: b"{", "not valid JSON"),
    ("model.json", None, "not an exported model"),
    ("model.json", (b'"job.yaml":', b'"../job.yaml":'), "key files.*should match pattern"),
    ("model.json", (b'"job.yaml":', b'"more.yaml":'), r"a file is not listed; found: job\.yaml"),
]


@pytest.mark.parametrize(("name", "change", "problem"), DAMAGE)
def test_a_damaged_folder_is_refused(folder, name, change, problem):
    file = folder / name
    if change is None:
        file.unlink()
    elif isinstance(change, tuple):
        assert change[0] in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(*change))
    else:
        file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError, match=rf"{name}.*{problem}"):
        load_model(folder)


UNFIT = [
    ("best", "probe", "best is probe, which is none of the predictors"),
    ("predictors", {"knn": {"k": 1, "lambda": 0.5, "temperature": 1}}, "the first of the predictors must be"),
    ("decisions", {}, "each of the predictors needs a decision"),
    ("decisions", {"classifier": {"mode": "global", "thresholds": [0.2] * 3}}, "thresholds for 4 labels"),
    ("levels", {"topic": {"classes": ["a"], "parents": [0, 0, 0, 1]}}, "parents of level topic do not fit"),
]


@pytest.mark.parametrize(("key", "value", "problem"), UNFIT)
def test_an_index_that_does_not_fit_itself(key, value, problem, folder):
    index = folder / "model.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {key: value}))
    with pytest.raises(UserError, match=rf"model\.json.*{problem}"):
        load_model(folder)


def sign(folder):
    """Updates the checksums in `model.json` after files were changed."""
    index = json.loads((folder / "model.json").read_text())
    index["files"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in index["files"]
    }
    (folder / "model.json").write_text(json.dumps(index))


def test_neighbours_that_do_not_fit_the_model(folder):
    file = folder / "datastore.parquet"
    table = pq.read_table(file)
    n = len(table)
    words = pa.array([["a"]] * n)
    for column, values, problem in (
        ("label", pa.array([4] * n, pa.int32()), "labels outside -1 to 3"),
        ("label", pa.array([-2] * n, pa.int32()), "labels outside -1 to 3"),
        ("embedding", pa.array([[1.0, 2.0]] * n, pa.list_(pa.float32(), 2)), "embeddings of another model"),
        ("embedding", words, "not the datastore of a model"),
    ):
        pq.write_table(table.set_column(table.schema.get_field_index(column), column, values), file)
        sign(folder)
        with pytest.raises(UserError, match=rf"datastore\.parquet: .*{problem}"):
            load_model(folder)


@pytest.mark.parametrize("content", [b"\xff", b"{}"])
def test_a_tokenizer_that_is_none(folder, content):
    (folder / "tokenizer.json").write_bytes(content)
    sign(folder)
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer"):
        load_model(folder)


def test_a_device_that_is_none(folder):
    with pytest.raises(UserError, match="no such device; found: tpu; allowed: auto, cpu, cuda"):
        load_model(folder, "tpu")


def test_a_device_of_torch_is_taken(folder):
    texts = ["ball run", "vote"]
    probabilities = load_model(folder, torch.device("cpu")).predict_proba(texts)
    assert (probabilities == load_model(folder, "cpu").predict_proba(texts)).all()


def test_a_full_disk_leaves_nothing(finished, tmp_path, monkeypatch):
    def full(tensors, file):
        file.write_bytes(b"some")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(model_writer, "save_file", full)
    with pytest.raises(UserError, match="cannot be written; found: No space left on device"):
        write_export(tmp_path / "new", *finished, {})
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_format_leaves_nothing(finished, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model_writer, "write_formats", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_export(tmp_path / "new", *finished, {})
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_all_that_is_needed(finished, tmp_path):
    run, job_data = finished
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="already exists"):
        write_export(tmp_path / "there", run, job_data, {})
    other_data = JobData.of(tiny_job(text_dataset(tmp_path / "data", seed=3), epochs=2), tmp_path)
    with pytest.raises(
        UserError, match=r"not the data that the run was trained on.*allowed: " + job_data.fingerprint
    ):
        write_export(tmp_path / "new", run, other_data, {})
    subset_data = JobData.of(tiny_job(job_data.dataset.place, "data.subset.n=20", epochs=2), tmp_path)
    with pytest.raises(UserError, match="embeddings of other train rows"):
        write_export(tmp_path / "new", run, subset_data, {})
    wider_model = JobData.of(tiny_job(job_data.dataset.place, "encoder.width=9", epochs=2), tmp_path)
    with pytest.raises(UserError, match="weights of another model"):
        write_export(tmp_path / "new", run, wider_model, {})
    (tmp_path / "bare").mkdir()
    with pytest.raises(UserError, match=r"result\.json: the run left no such file"):
        write_export(tmp_path / "new", tmp_path / "bare", job_data, {})
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="key --to: cannot be written"):
        write_export(tmp_path / "file" / "model", run, job_data, {})
