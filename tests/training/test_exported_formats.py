"""Tests that additional export formats give the outputs of the model, from its folder alone."""

import json
from fnmatch import fnmatch

import numpy as np
import pytest
import torch
from builders import shades, tiny_job
from stored_runs import run, weights
from tiny_models import KINDS, tiny_model
from tokenizers import Tokenizer

from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.training.builders import build_model
from mlcl.training.checkpoint import load_trained_weights
from mlcl.training.export import load_model, onnx_graph, write_export
from mlcl.training.export.hub import OWN
from mlcl.training.export.sentence_transformer import write_sentence_transformers
from mlcl.training.features.inputs import SavedFeatures, sections
from mlcl.training.input_reader import decode_contents
from mlcl.training.job_data import JobData

TAGS = (
    "objective.heads={}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)
KIND = ("objective.heads={}", "objective.classifier.labels=kind", "evaluation.knn=null", "train.batch_size=4")
PROBE = "evaluation.probe={epochs: 10, lr: [0.01], weight_decay: [0.0]}"
LORA = "pooling: mean, lora: {r: 2, alpha: 4, dropout: 0.1}"
GRAPHS = {
    "words": (PROBE,),
    "words, aspects": ("objective.heads={}", "objective.classifier.labels=ratings"),
    "features": ("encoder={name: features, inputs: [tfidf, characters], out: 6, deep_columns: 5}",),
    "images": (*KIND, "encoder={name: cnn_image, width: 4, blocks: 2, image_size: 9}"),
    "bert": ("encoder={name: transformer, model: =bert, max_length: 8}",),
}
SLOW = {
    "words, labels": TAGS,
    "resnet18": (*KIND, "encoder={name: resnet18, image_size: 9}"),
    "roberta": (f"encoder={{name: transformer, model: =roberta, max_length: 8, {LORA}}}",),
    "llama": ("encoder={name: transformer, model: =llama, max_length: 8, pooling: last}",),
    "plm_icd": (*TAGS, "encoder={name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8}"),
}
LDGN = "encoder={name: ldgn, width: 4, embedding_dim: 4, max_length: 8}"
HEAD = (
    "objective.heads.detail={loss: supcon, labels: detail, weight: 0.3, projection: {PROJECTION}, NORMALIZE}"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {kind: tiny_model(tmp_path_factory.mktemp(kind) / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return shades(tmp_path_factory.mktemp("images") / "data")


def written(data, settings, models, tmp_path, *formats):
    """Trains a model, exports it with additional formats, and returns its folder."""
    for kind, folder in models.items():
        settings = [setting.replace(f"={kind}", str(folder)) for setting in settings]
    job_data, _ = run(tiny_job(data, *settings, epochs=1), tmp_path)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {}, formats=formats)
    return tmp_path / "model"


def refused(data, settings, tmp_path, *formats):
    job_data, _ = run(tiny_job(data, *settings, epochs=1), tmp_path)
    with pytest.raises(UserError) as error:
        write_export(tmp_path / "model", tmp_path / "run", job_data, {}, formats=formats)
    assert sorted(file.name for file in tmp_path.iterdir() if "model" in file.name) == []
    return str(error.value)


def prepared(folder, contents, job):
    """Returns the inputs of the exported graph, made from the files of the folder alone."""
    if job.encoder.name == "features":
        rows = SavedFeatures.load(sections(job.encoder), folder, torch.device("cpu")).contents(
            contents, contents
        )
        return {name: matrix.toarray().astype(np.float32) for name, matrix in rows.inputs.items()}
    if not (folder / "tokenizer.json").exists():
        return {"pixels": decode_contents(contents, ["" for _ in contents], job.encoder.image_size)}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(job.encoder.max_length)
    tokenizer.enable_padding(length=job.encoder.max_length, pad_id=(tokenizer.padding or {}).get("pad_id", 0))
    encodings = tokenizer.encode_batch(contents)
    mask = np.array([row.attention_mask for row in encodings], dtype=bool)
    return {"input_ids": np.array([row.ids for row in encodings]), "attention_mask": mask}


@pytest.mark.parametrize("name", [*GRAPHS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_graph_gives_embeddings_and_probabilities_of_the_model(name, tiny, images, models, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    settings = {**GRAPHS, **SLOW}[name]
    data = images if KIND[1] in settings else tiny
    folder = written(data, settings, models, tmp_path, "onnx")
    model, split = load_model(folder, "cpu"), Dataset.open(data).split("test")
    contents = list(split.texts() if model.index.modality == "text" else split.images())
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, prepared(folder, contents, model.job)), strict=True))
    embeddings = model.outputs(contents)[:, : outputs["embeddings"].shape[1]]
    np.testing.assert_allclose(outputs["embeddings"], embeddings, rtol=1e-4, atol=1e-4)
    layers = [name for name in model.index.predictors if f"{name}_logits" in outputs]
    assert ["embeddings", *(f"{name}_logits" for name in layers)] == names
    assert layers
    for name in layers:
        logits = torch.from_numpy(outputs[f"{name}_logits"])
        probabilities = logits.sigmoid() if model.index.task == "multi_label" else logits.softmax(-1)
        np.testing.assert_allclose(probabilities, model.predict_proba(contents, predictor=name), atol=1e-4)
    assert "model.onnx" in model.index.files
    card = (folder / "README.md").read_text()
    assert "`embeddings`" in card
    sentence = f"truncated to the job's {getattr(model.job.encoder, 'max_length', 0)} tokens"
    assert (sentence in card) == ("input_ids" in [node.name for node in session.get_inputs()])


def test_a_graph_that_differs_is_refused(tiny, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_graph, "TOLERANCE", -1.0)
    assert "the ONNX graph differs from the network; found: embeddings by" in refused(
        tiny, (), tmp_path, "onnx"
    )


@pytest.mark.parametrize(
    ("settings", "format", "said"),
    [
        (("train.precision=bf16",), "onnx", "no exact ONNX graph: train.precision: bf16"),
        ((*TAGS, LDGN), "onnx", "packed sequences; found: onnx of ldgn"),
        ((), "sentence-transformers", "is for the encoder transformer; found: encoder cnn_text"),
        ((), "sentence-transformers:", "no such format; found: sentence-transformers:; allowed: onnx"),
        ((), "torch", "no such format; found: torch"),
    ],
)  # fmt: skip
def test_a_format_that_would_not_be_exact_is_refused(settings, format, said, tiny, tmp_path):
    assert said in refused(tiny, settings, tmp_path, format)


def test_a_format_named_twice_and_a_missing_package(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("mlcl.extras.find_spec", lambda name: None)
    assert "needs the package onnx: pip install 'mlcl[onnx]'" in refused(tiny, (), tmp_path, "onnx")
    monkeypatch.setattr("mlcl.training.export.model_writer.check_onnx", lambda job: None)
    assert "names a format twice" in refused(tiny, (), tmp_path / "b", "onnx", "onnx")


def encoded(folder, texts):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("bert", "pooling: cls"), ("bert", LORA), ("roberta", "pooling: mean"), ("llama", "pooling: last")],
)
def test_sentence_transformers_gives_the_embeddings(kind, more, tiny, models, tmp_path):
    encoder = f"encoder={{name: transformer, model: ={kind}, max_length: 6, {more}}}"
    folder = written(tiny, (encoder,), models, tmp_path, "sentence-transformers")
    texts = [*Dataset.open(tiny).split("test").texts(), "ball " * 20, "unheard words", ""]
    np.testing.assert_allclose(encoded(folder, texts), load_model(folder, "cpu").outputs(texts), atol=1e-5)
    assert (
        json.loads((folder / "config_sentence_transformers.json").read_text())["similarity_fn_name"]
        == "euclidean"
    )
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    kept_names = {name for name in names if not any(fnmatch(name, pattern) for pattern in OWN)}
    assert kept_names == {"weights.safetensors", "model.json", "job.yaml", "README.md"}
    assert len({file.stat().st_mode for file in folder.glob("*.safetensors")}) == 1


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize(
    "projection", ["dim: 5", "kind: linear, dim: 5, normalize_input: true", "kind: identity"]
)
def test_a_heads_projection_follows_as_dense_layers(projection, unit, tiny, models, tmp_path):
    head = HEAD.replace("PROJECTION", projection).replace("NORMALIZE", f"normalize: {str(unit).lower()}")
    settings = (head, f"encoder={{name: transformer, model: {models['bert']}, max_length: 8}}")
    job_data, _ = run(tiny_job(tiny, *settings, epochs=1), tmp_path)
    model = build_model(job_data)
    load_trained_weights(model, weights(tmp_path / "run"))
    head = dict(model.objective.named_heads())["detail"]
    write_export(tmp_path / "model", tmp_path / "run", job_data, {}, formats=["sentence-transformers:detail"])
    texts = Dataset.open(tiny).split("test").texts()
    z = head.projection(load_model(tmp_path / "model", "cpu").outputs(texts)).detach()
    expected = torch.nn.functional.normalize(z) if unit else z
    np.testing.assert_allclose(encoded(tmp_path / "model", texts), expected, atol=1e-5)
    refused_head = tmp_path / "other"
    with pytest.raises(UserError, match="no such head in the job; found: nobody; allowed: detail"):
        write_export(refused_head, tmp_path / "run", job_data, {}, formats=["sentence-transformers:nobody"])
    assert not refused_head.exists()


@pytest.mark.parametrize(
    ("loss", "normalize", "name"),
    [("knn", False, "euclidean"), ("simdis", False, "dot"), ("simdis", True, "cosine")],
)
def test_a_heads_similarity_is_that_of_its_loss(loss, normalize, name, tiny, models, tmp_path):
    head = f"loss: {loss}, labels: tags, weight: 0.3, normalize: {str(normalize).lower()}"
    encoder = f"encoder={{name: transformer, model: {models['bert']}, max_length: 8}}"
    job_data = JobData.of(tiny_job(tiny, f"objective.heads={{tags: {{{head}}}}}", encoder), tmp_path)
    write_sentence_transformers(build_model(job_data), job_data, tmp_path, "tags")
    config = json.loads((tmp_path / "config_sentence_transformers.json").read_text())
    assert config["similarity_fn_name"] == name
