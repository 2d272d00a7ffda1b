"""Tests of the objective against sums written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from builders import tiny_job
from torch import nn

from mlcl.errors import UserError
from mlcl.losses import build_loss, joint_loss
from mlcl.models import LinearClassifier
from mlcl.training.builders import build_model
from mlcl.training.classifier import Classifier, CrossEntropy
from mlcl.training.export.model_writer import check_formats
from mlcl.training.job_data import JobData
from mlcl.training.objective import Head, Objective

Z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])
IDS = torch.arange(6)


def head(weight, temperature=0.5):
    return Head(nn.Identity(), build_loss("supcon", temperature=temperature), weight)


def test_parts_are_added_with_their_weights():
    linear = nn.Linear(4, 3)
    objective = Objective({"a": head(0.2), "b": head(0.3, 0.1)}, Classifier(linear, 0.5, CrossEntropy()))
    value = objective(Z, {"a": CLASSES, "b": CLASSES % 2, "classifier": CLASSES}, IDS)
    a = build_loss("supcon", temperature=0.5)(Z, CLASSES)
    b = build_loss("supcon", temperature=0.1)(Z, CLASSES % 2)
    ce = F.cross_entropy(linear(Z), CLASSES)
    assert value.total.item() == pytest.approx((0.2 * a + 0.3 * b + 0.5 * ce).item(), rel=1e-6)
    assert value.parts["heads/b/loss"].item() == pytest.approx(b.item(), rel=1e-6)


def test_heads_on_one_embedding_share_its_pairs(monkeypatch):
    """Tests that two of four heads share pairs: one other has a projection, one normalises embeddings."""
    n_pairs = []
    monkeypatch.setattr("mlcl.training.objective.joint_loss", _noting(joint_loss, n_pairs))
    unit_head = Head(nn.Identity(), build_loss("any", temperature=0.3, normalize=True), 0.1)
    projected_head = Head(nn.Linear(4, 4, bias=False), build_loss("supcon", temperature=0.3), 0.4)
    nn.init.eye_(projected_head.projection.weight)
    objective = Objective({"a": head(0.2), "p": projected_head, "b": head(0.3, 0.1), "u": unit_head}, None)
    labels = dict.fromkeys("apbu", CLASSES)
    embedding = Z.clone().requires_grad_()
    value = objective(embedding, labels, IDS)
    assert n_pairs == [2]
    losses = {name: named_head(embedding, CLASSES, IDS) for name, named_head in objective.named_heads()}
    for name, expected in losses.items():
        assert value.parts[f"heads/{name}/loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    expected = sum(named_head.weight * losses[name] for name, named_head in objective.named_heads())
    gradients = [torch.autograd.grad(total, embedding)[0] for total in (value.total, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("classes", [3, 2])
def test_a_head_may_read_the_logits(classes):
    """Tests a head on logits beside a head on embeddings, for a classifier of classes and one of aspects."""
    linear = LinearClassifier(4, classes, aspects=None if classes == 3 else 2)
    logit_head = Head(nn.Identity(), build_loss("supcon", temperature=0.5), 0.3, reads_logits=True)
    targets = CLASSES if classes == 3 else torch.stack([CLASSES % 2, CLASSES // 2], 1)
    objective = Objective({"z": head(0.2), "s": logit_head}, Classifier(linear, 0.5, CrossEntropy()))
    value = objective(Z, {"z": CLASSES, "s": CLASSES, "classifier": targets}, IDS)
    expected = build_loss("supcon", temperature=0.5)(linear(Z).flatten(1), CLASSES)
    assert value.parts["heads/s/loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(value.parts["heads/s/loss"], linear.linear.weight)
    assert gradient.abs().sum() > 0
    weighted_parts = dict(
        objective.weighted_parts(Z, {"z": CLASSES, "s": CLASSES, "classifier": targets}, IDS)
    )
    assert weighted_parts["heads/s"].item() == pytest.approx(0.3 * expected.item(), rel=1e-6)


def test_a_job_whose_head_reads_logits(tiny, tmp_path):
    kind = "objective.heads.topic.projection.kind=logits"
    model = build_model(JobData.of(tiny_job(tiny, kind), tmp_path))
    assert [named_head.reads_logits for _, named_head in model.objective.named_heads()] == [False, True]
    with pytest.raises(UserError, match="head topic reads logits, and a classifier of weight 0 has none"):
        tiny_job(tiny, kind, "objective.classifier.weight=0")
    encoder = "encoder={name: transformer, model: nowhere}"
    with pytest.raises(UserError, match="no such head in the job; found: topic; allowed: detail"):
        check_formats(["sentence-transformers:topic"], tiny_job(tiny, kind, encoder))


def _noting(function, made):
    def noted(losses, *arguments, **options):
        made.append(len(losses))
        return function(losses, *arguments, **options)

    return noted


@pytest.mark.parametrize(("kind", "normalized", "shared"), [
    ("identity", False, True), ("identity", True, False), ("linear", False, False),
])  # fmt: skip
def test_heads_of_a_job_share_the_embedding_itself(tiny, kind, normalized, shared, tmp_path):
    keys = {"kind": kind, "normalize_input": normalized}
    overrides = [f"objective.heads.*.projection.{key}={str(value).lower()}" for key, value in keys.items()]
    model = build_model(JobData.of(tiny_job(tiny, *overrides), tmp_path))
    first, second = (head for _, head in model.objective.named_heads())
    assert (first.sharing is not None) == shared
    assert first.sharing == second.sharing
    long_embedding = torch.full((1, int(model.encoder.dim)), 5.0)
    assert torch.equal(first.projection(long_embedding), first.projection(2 * long_embedding)) == normalized


def test_parts_of_weight_zero_are_not_built(tiny, tmp_path):
    overrides = ("objective.heads.detail.weight=1", "objective.heads.topic.weight=0")
    model = build_model(JobData.of(tiny_job(tiny, *overrides), tmp_path))
    assert [name for name, _ in model.objective.named_heads()] == ["detail"]
    assert model.objective.classifier is None
