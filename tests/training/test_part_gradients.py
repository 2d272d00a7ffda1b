"""Tests of the norm of each part's gradient against autograd on the whole objective."""

import pytest
import torch
from builders import tiny_job
from training.training_ranks import float64_run

from mlcl.training.builders import build_model
from mlcl.training.context import ONE_PROCESS
from mlcl.training.grad_cache import gradient_norms
from mlcl.training.job_data import JobData

LABELS = (
    "objective.heads={shared: {loss: simdis, labels: tags, weight: 0.3}, detail: {loss: knn, labels: detail, "
    "weight: 0.1, reduction: sum, projection: {kind: identity}}}",
    "objective.classifier={loss: bce, labels: tags, weight: 0.6}",
    "evaluation.metric=val/micro_f1",
)
NAMES = ["heads/shared/gradient_norm", "heads/detail/gradient_norm", "classifier/gradient_norm"]


@pytest.mark.parametrize("encoder", ["cnn_text", "ldgn"])
def test_norms_are_those_of_the_summands(tiny, tmp_path, encoder):
    ldgn = ("encoder={name: ldgn, width: 8, embedding_dim: 8, max_length: 8}",) if encoder == "ldgn" else ()
    job_data = JobData.of(tiny_job(tiny, *LABELS, *ldgn), tmp_path)
    torch.manual_seed(0)
    model = build_model(job_data).double()
    batch = job_data.encode(job_data.train).batch(torch.arange(9), 2, torch.device("cpu"))
    output = model(batch.inputs)
    norms = gradient_norms(model.objective, output, batch, ONE_PROCESS, "float32")
    assert list(norms) == NAMES
    value = model.objective(output, batch.labels, batch.sample_ids)
    for name, norm in norms.items():
        part = name.removesuffix("/gradient_norm")
        weight = {"heads/shared": 0.3, "heads/detail": 0.1, "classifier": 0.6}[part]
        (expected,) = torch.autograd.grad(weight * value.parts[f"{part}/loss"], output, retain_graph=True)
        assert norm == pytest.approx(expected.norm().item(), rel=1e-9)
        assert norm > 0
    assert all(p.grad is None for p in model.parameters())


def windows(tiny, home, *settings):
    run = float64_run(tiny_job(tiny, *LABELS, "train.epochs=2", *settings), home)
    return run["windows"], run["weights"]


def test_norms_are_logged_with_the_window_and_change_nothing(tiny, tmp_path):
    (windows_on, weights), (windows_off, expected) = (
        windows(tiny, tmp_path, f"train.log_gradients={enabled}") for enabled in (True, False)
    )
    assert [{*norms} for norms in windows_on] == 2 * [{"train/loss", *(f"train/{name}" for name in NAMES)}]
    assert [{*norms} for norms in windows_off] == 2 * [{"train/loss"}]
    assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_micro_batches_log_the_same_norms(tiny, tmp_path):
    settings = ("encoder.dropout=0", "train.log_gradients=true")
    batch_windows, _ = windows(tiny, tmp_path, *settings)
    micro_windows, _ = windows(tiny, tmp_path, *settings, "train.micro_batch_size=3")
    assert micro_windows == [pytest.approx(norms, rel=1e-9) for norms in batch_windows]
