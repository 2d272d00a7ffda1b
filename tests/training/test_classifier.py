"""Tests of the classifier's losses against loops written from their equations."""

import math
from dataclasses import replace

import pytest
import torch
from builders import text_dataset, tiny_job
from stored_runs import run, weights
from torch import nn

from mlcl.config import ClassifierConfig
from mlcl.labels import LabelRows
from mlcl.training.builders import build_model
from mlcl.training.classifier import (
    AsymmetricLoss,
    BinaryCrossEntropy,
    Classifier,
    CrossEntropy,
    ZeroBoundedRanking,
    target_weight,
)
from mlcl.training.job_data import JobData

LISTS = [[0], [], [1, 2], [0, 1, 2], [2], [1]]
OPEN = [[1, 2], [0, 1, 2], [], [], [0], [0, 2]]
ROWS = LabelRows.from_lists(LISTS, 3)
SOME = replace(ROWS, unknown=LabelRows.from_lists(OPEN, 3))
TOLD = replace(ROWS, unknown=LabelRows.from_lists([[]] * 6, 3))
NOTHING = replace(LabelRows.from_lists([[]] * 6, 3), unknown=LabelRows.from_lists([[0, 1, 2]] * 6, 3))
CLASSES = torch.tensor([0, -1, 2, 0, 1, 2])
ASPECTS = torch.tensor([[0, 1], [2, -1], [1, 1], [0, 0], [-1, -1], [2, 2]])
WEIGHTS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


def test_logits_are_float32_in_half_precision():
    torch.manual_seed(0)
    classifier = Classifier(nn.Linear(16, 4), 1.0, CrossEntropy())
    features, targets = torch.randn(8, 16), torch.arange(8) % 4
    expected = classifier(features, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(classifier(features, targets), expected)
        assert classifier(features.bfloat16(), targets).dtype == torch.float32


def features(rows=6, columns=3):
    return 3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def value(loss, targets, logits, reduction="mean"):
    return Classifier(nn.Identity(), 1.0, loss, reduction)(logits, targets).item()


def reduced(terms, reduction):
    """Returns the reduced loss of `terms`, which has a list of known terms for each row."""
    if reduction == "mean":
        return math.fsum(x for row in terms for x in row) / sum(map(len, terms))
    return math.fsum(x for row in terms for x in row) / sum(bool(row) for row in terms)


def probability(logit):
    return 1 / (1 + math.exp(-logit))


def bce(logit, target, weight=1.0):
    p = probability(logit)
    return -weight * math.log(p) if target else -math.log(1 - p)


def asl(logit, target, gamma_pos, gamma_neg, clip):
    p = probability(logit)
    p_clipped = max(p - clip, 0.0)
    if target:
        return -((1 - p) ** gamma_pos) * math.log(p)
    return -(p_clipped**gamma_neg) * math.log(1 - p_clipped) if p_clipped else 0.0


@pytest.mark.parametrize("reduction", ["mean", "sum_labels"])
@pytest.mark.parametrize(
    ("loss", "term"),
    [
        (BinaryCrossEntropy(), lambda x, y, _: bce(x, y)),
        (BinaryCrossEntropy(WEIGHTS), lambda x, y, label: bce(x, y, WEIGHTS[label].item())),
        (AsymmetricLoss(0, 4, 0.05), lambda x, y, _: asl(x, y, 0, 4, 0.05)),
        (AsymmetricLoss(1, 2.5, 0.2), lambda x, y, _: asl(x, y, 1, 2.5, 0.2)),
        (AsymmetricLoss(0.5, 0.5, 0), lambda x, y, _: asl(x, y, 0.5, 0.5, 0)),
        (AsymmetricLoss(0, 0, 0), lambda x, y, _: bce(x, y)),
    ],
)
def test_losses_of_labels(loss, term, reduction):
    classifier = Classifier(nn.Identity(), 1.0, loss, reduction)
    for rows, unknown in ((ROWS, [[]] * 6), (TOLD, [[]] * 6), (SOME, OPEN)):
        logits = features().requires_grad_()
        terms = [
            [term(logits[i, k].item(), k in LISTS[i], k) for k in range(3) if k not in unknown[i]]
            for i in range(6)
        ]
        loss_value = classifier(logits, rows)
        assert loss_value.item() == pytest.approx(reduced(terms, reduction), rel=1e-12)
        loss_value.backward()
        assert not any(logits.grad[i, k] for i in range(6) for k in unknown[i])
        assert torch.autograd.gradcheck(lambda x, rows=rows: classifier(x, rows), features().requires_grad_())
    assert value(loss, NOTHING, features(), reduction) == 0


def zlpr(logits, has, known):
    negative_sum = math.fsum(math.exp(logits[k]) for k in known if k not in has)
    positive_sum = math.fsum(math.exp(-logits[k]) for k in known if k in has)
    return math.log(1 + negative_sum) + math.log(1 + positive_sum)


@pytest.mark.parametrize("reduction", ["mean", "sum_labels"])
def test_zlpr_is_a_loss_of_the_known_labels_of_each_row(reduction):
    """Tests that both reductions are the mean over rows with a known label, in any order of the labels."""
    classifier = Classifier(nn.Identity(), 1.0, ZeroBoundedRanking(), reduction)
    partial_rows = replace(
        ROWS, unknown=LabelRows.from_lists([[1, 2], [0, 1, 2], [0], [], [0, 1], [0, 2]], 3)
    )
    for rows, unknown in ((ROWS, [[]] * 6), (SOME, OPEN), (partial_rows, partial_rows.unknown.lists())):
        logits = features().requires_grad_()
        known_labels = [[k for k in range(3) if k not in unknown[i]] for i in range(6)]
        terms = [
            [zlpr(logits[i].tolist(), LISTS[i], known_labels[i])] if known_labels[i] else [] for i in range(6)
        ]
        loss_value = classifier(logits, rows)
        assert loss_value.item() == pytest.approx(reduced(terms, reduction), rel=1e-12)
        loss_value.backward()
        assert not any(logits.grad[i, k] for i in range(6) for k in unknown[i])
        assert torch.autograd.gradcheck(lambda x, rows=rows: classifier(x, rows), features().requires_grad_())
    order, dense = [2, 0, 1], ROWS.dense(torch.float64)
    loss = ZeroBoundedRanking()
    torch.testing.assert_close(loss(features()[:, order], dense[:, order]), loss(features(), dense))
    assert value(loss, NOTHING, features(), reduction) == 0


def test_zlpr_by_hand_and_for_large_logits():
    """Tests that the loss of one label is the binary cross-entropy, and that large logits stay finite."""
    logits, target = torch.tensor([[0.7], [-1.2]]), torch.tensor([[1.0], [0.0]])
    torch.testing.assert_close(ZeroBoundedRanking()(logits, target), BinaryCrossEntropy()(logits, target))
    assert ZeroBoundedRanking()(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]])).item() == pytest.approx(
        math.log(2) + math.log(3)
    )
    large_logits = torch.tensor([[-200.0, 200.0, 0.0]] * 6, requires_grad=True)
    loss = ZeroBoundedRanking()(large_logits, ROWS.dense())
    loss.sum().backward()
    assert loss.isfinite().all()
    assert large_logits.grad.isfinite().all()


@pytest.mark.parametrize("reduction", ["mean", "sum_labels"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_leaves_out_what_is_missing(reduction, weighted):
    weight_AC = torch.stack([WEIGHTS, WEIGHTS.flip(0)])
    for targets, logits in ((CLASSES, features()), (ASPECTS, features(6, 6).reshape(6, 2, 3))):
        loss = CrossEntropy(weight_AC[: 1 if targets.dim() == 1 else 2] if weighted else None)
        rows = []
        for target_A, logit_AC in zip(
            targets.reshape(6, -1).tolist(), logits.reshape(6, -1, 3).tolist(), strict=True
        ):
            rows.append([])
            for aspect, (target, logit_C) in enumerate(zip(target_A, logit_AC, strict=True)):
                if target >= 0:
                    term = math.log(math.fsum(map(math.exp, logit_C))) - logit_C[target]
                    rows[-1].append(term * (weight_AC[aspect, target].item() if weighted else 1.0))
        assert value(loss, targets, logits, reduction) == pytest.approx(reduced(rows, reduction), rel=1e-12)
    assert value(CrossEntropy(), torch.full((6,), -1), features(), reduction) == 0.0


@pytest.mark.parametrize("options", [(0.0, 4.0, 0.05), (1.0, 2.0, 0.0), (0.5, 0.5, 0.1)])
def test_asl_has_the_gradient_of_its_value(options):
    logits = features().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: AsymmetricLoss(*options)(x, ROWS.dense(x.dtype)), logits)


@pytest.mark.parametrize("options", [(0.0, 4.0, 0.05), (0.5, 0.5, 0.0), (0.0, 0.0, 0.0)])
def test_asl_is_finite_for_large_logits(options):
    logits = torch.tensor([[-200.0, 200.0, 0.0]] * 6, requires_grad=True)
    loss = AsymmetricLoss(*options)(logits, ROWS.dense())
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logits.grad.isfinite().all()


def test_a_weight_of_labels_by_hand():
    rows = LabelRows.from_lists([[0, 3], [0, 3], [0, 1, 3], [3]], 4)
    balanced_weight = target_weight(of(loss="bce", pos_weight="balanced"), rows, 4)
    assert balanced_weight.tolist() == pytest.approx([1 / 3, 3, 4, 1 / 4])
    sqrt_weight = target_weight(of(loss="bce", pos_weight="sqrt"), rows, 4)
    assert sqrt_weight.tolist() == pytest.approx(balanced_weight.sqrt().tolist())
    assert target_weight(of(loss="bce"), rows, 4) is None
    # All known rows have label 2, so it counts as if one row did not.
    known_columns = [[k in LISTS[i] for i in range(6) if k not in OPEN[i]] for k in range(3)]
    expected = [max(len(column) - sum(column), 1) / sum(column) for column in known_columns]
    config = of(loss="bce", pos_weight="balanced")
    assert target_weight(config, SOME, 3).tolist() == pytest.approx(expected)
    assert torch.equal(target_weight(config, ROWS, 3), target_weight(config, TOLD, 3))


@pytest.mark.parametrize(("balance", "power"), [("balanced", 1.0), ("sqrt", 0.5)])
@pytest.mark.parametrize("targets", [CLASSES, ASPECTS])
def test_a_weight_of_classes_has_the_mean_1_over_rows(balance, power, targets):
    config = of(class_weight=balance)
    weight_AC = target_weight(config, targets, 4)
    for weight_C, column in zip(weight_AC, targets.reshape(6, -1).T, strict=True):
        known_classes = column[column >= 0]
        assert weight_C[known_classes].mean().item() == pytest.approx(1.0)
        counts = torch.bincount(known_classes, minlength=4)
        for a in range(3):
            for b in range(3):
                expected = (counts[b] / counts[a]).item() ** power
                assert (weight_C[a] / weight_C[b]).item() == pytest.approx(expected)


def of(**keys):
    return ClassifierConfig(**{"loss": "cross_entropy", "labels": "x", **keys})


@pytest.mark.parametrize(
    "classifier",
    ["{loss: bce, labels: tags, pos_weight: sqrt, reduction: sum_labels}", "{loss: asl, labels: tags}",
     "{loss: zlpr, labels: tags}", "{loss: cross_entropy, labels: ratings, class_weight: balanced}"],
)  # fmt: skip
def test_jobs_with_these_keys_train_and_keep_no_weights_of_labels(tiny, tmp_path, classifier):
    metric = "val/micro_f1" if "tags" in classifier else "val/accuracy"
    job = tiny_job(tiny, f"objective.classifier={classifier}", f"evaluation.metric={metric}", epochs=1)
    _, metrics = run(job, tmp_path)
    assert 0 <= metrics[metric] <= 1
    tensors = weights(tmp_path / "run")
    layer = [name.rpartition(".")[2] for name in tensors if name.startswith("objective.classifier")]
    assert sorted(layer) == ["bias", "weight"]


def test_weights_come_from_the_rows_that_are_trained_on(tmp_path):
    data = text_dataset(tmp_path / "data")
    overrides = (
        "objective.classifier={loss: cross_entropy, labels: detail, class_weight: balanced}",
        "data.subset={n: 10, labels: detail}",
        "data.label_noise={rate: 0.7}",
    )
    job_data = JobData.of(tiny_job(data, *overrides), tmp_path)
    classes, model = job_data.targets(job_data.train), build_model(job_data)
    weight_AC = model.objective.classifier.loss.weight_AC
    assert weight_AC[0, classes].mean().item() == pytest.approx(1.0)
    assert len(weight_AC[0].unique()) > 1
    assert "objective.classifier.loss.weight_AC" not in model.state_dict()
