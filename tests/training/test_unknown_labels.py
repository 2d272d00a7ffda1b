"""Label rows that leave entries open: the classifier's loss against loops, a run, and its exported model."""

import math
from dataclasses import replace

import pytest
import torch
from builders import job_tree, unknown_dataset
from torch import nn

from mlcl.config import ClassifierConfig, load_job
from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.evaluation import METRICS, Setting
from mlcl.labels import LabelRows
from mlcl.plugins import Registry
from mlcl.training.classifier import AsymmetricLoss, BinaryCrossEntropy, Classifier, target_weight
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = Context(torch.device("cpu"))
LISTS = [[0], [], [1, 2], [0, 1, 2], [2], [1]]
OPEN = [[1, 2], [0, 1, 2], [], [], [0], [0, 2]]
WEIGHTS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
PLAIN = LabelRows.from_lists(LISTS, 3)
ROWS = replace(PLAIN, unknown=LabelRows.from_lists(OPEN, 3))
TOLD = replace(PLAIN, unknown=LabelRows.from_lists([[]] * 6, 3))
LOSSES = {
    "bce": (BinaryCrossEntropy(), lambda x, y, label: bce(x, y)),
    "weighted bce": (BinaryCrossEntropy(WEIGHTS), lambda x, y, label: bce(x, y, WEIGHTS[label].item())),
    "asl": (AsymmetricLoss(1, 2.5, 0.2), lambda x, y, label: asl(x, y)),
}


def bce(logit, target, weight=1.0):
    p = 1 / (1 + math.exp(-logit))
    return -weight * math.log(p) if target else -math.log(1 - p)


def asl(logit, target):
    p = 1 / (1 + math.exp(-logit))
    shifted = max(p - 0.2, 0.0)
    return -(1 - p) * math.log(p) if target else -(shifted**2.5) * math.log(1 - shifted)


def features():
    return 3 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def value_of(loss, rows, logits, reduction="mean"):
    return Classifier(nn.Identity(), 1.0, loss, reduction)(logits, rows)


def looped(term, logits, reduction):
    """The mean over known entries, or over rows with any of their sums."""
    terms = [
        [
            term(logits[i, label].item(), label in LISTS[i], label)
            for label in range(3)
            if label not in OPEN[i]
        ]
        for i in range(6)
    ]
    count = sum(map(len, terms)) if reduction == "mean" else sum(bool(row) for row in terms)
    return math.fsum(x for row in terms for x in row) / count


@pytest.mark.parametrize("reduction", ["mean", "sum_labels"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_and_its_gradient_are_those_of_the_known_entries(name, reduction):
    loss, term = LOSSES[name]
    logits = features().requires_grad_()
    value = value_of(loss, ROWS, logits, reduction)
    assert value.item() == pytest.approx(looped(term, logits.detach(), reduction), rel=1e-12)
    value.backward()
    for i in range(6):
        for label in range(3):
            found = logits.grad[i, label].item()
            if label in OPEN[i]:
                assert found == 0.0
                continue
            step = torch.zeros(6, 3, dtype=torch.float64)
            step[i, label] = 1e-6
            above, below = (looped(term, logits.detach() + sign * step, reduction) for sign in (1, -1))
            assert found == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum_labels"])
@pytest.mark.parametrize("name", LOSSES)
def test_rows_without_an_unknown_entry_give_the_same_bits(name, reduction):
    results = []
    for rows in (PLAIN, TOLD):
        logits = features().float().requires_grad_()
        value = value_of(LOSSES[name][0], rows, logits, reduction)
        value.backward()
        results.append((value, logits.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_rows_that_tell_nothing_have_the_loss_0():
    nothing = replace(LabelRows.from_lists([[]] * 6, 3), unknown=LabelRows.from_lists([[0, 1, 2]] * 6, 3))
    logits = features().requires_grad_()
    value = value_of(BinaryCrossEntropy(), nothing, logits)
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


def test_a_weight_of_labels_counts_known_entries():
    config = ClassifierConfig(loss="bce", labels="x", pos_weight="balanced")
    known = [[(label in LISTS[i]) for i in range(6) if label not in OPEN[i]] for label in range(3)]
    # Label 2 has all rows that tell it: it counts as one that a single row has not.
    wanted = [max(len(column) - sum(column), 1) / sum(column) for column in known]
    assert target_weight(config, ROWS, 3).tolist() == pytest.approx(wanted)
    assert torch.equal(target_weight(config, PLAIN, 3), target_weight(config, TOLD, 3))


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return unknown_dataset(tmp_path_factory.mktemp("unknown") / "data")


def open_job(data, *overrides, **train):
    tree = job_tree(data, **train)
    head = {"loss": "jaccard", "labels": "findings", "weight": 0.3, "projection": {"dim": 8}}
    tree["objective"] = {"heads": {"sets": head}, "classifier": {"loss": "bce", "labels": "findings"}}
    tree["evaluation"] |= {"metric": "val/micro_f1", "threshold": "per_label"}
    return load_job(tree, overrides)


def test_heads_get_labels_alone_and_the_classifier_their_unknown_entries(findings, tmp_path):
    job_data = JobData.of(open_job(findings), tmp_path)
    rows = job_data.rows(job_data.train)
    assert rows.labels["sets"].unknown is None
    assert rows.labels["sets"].lists() == rows.labels["classifier"].lists()
    batch = rows.batch(torch.tensor([3, 7]), 2, torch.device("cpu"))
    wanted = [job_data.train.unknown("findings").lists()[i] for i in (3, 7, 3, 7)]
    assert batch.labels["classifier"].unknown.lists() == wanted


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("objective.classifier.loss=asl", "evaluation.threshold=global"),
        ("objective.classifier.weight=0", "evaluation.threshold=top_k"),
        ("objective.classifier.pos_weight=balanced", "data.label_noise.rate=0.2", "data.subset.n=30"),
        ("evaluation.metrics=[ranking, retrieval, bands]", "evaluation.probe={epochs: 5}"),
    ],
    ids=["bce", "asl", "two phases", "noise and subset", "groups"],
)
def test_an_exported_model_scores_as_the_run_did(findings, tmp_path, overrides):
    job = open_job(findings, *overrides, epochs=2)
    job_data = JobData.of(job, tmp_path)
    metrics = run_experiment(job_data, folder=tmp_path / "run", context=CPU, listener=lambda _: None).metrics
    write_export(tmp_path / "model", tmp_path / "run", job_data, {"run_id": "r", "name": "a"})
    model = load_model(tmp_path / "model", "cpu")
    for split, name in (("validation", "val"), ("test", "test")):
        told = Labelling(model, findings, split).run(lambda _: None).metrics
        assert f"{name}/micro_f1" in told
        assert told == pytest.approx({key: metrics[key] for key in told}, rel=0, abs=0, nan_ok=True)
    knn = job.evaluation.knn
    found = StoredRun.read(tmp_path / "run", job_data).metrics(Setting(knn.k, knn.lambda_, knn.temperature))
    assert found == pytest.approx({key: metrics[key] for key in found}, nan_ok=True)


def test_a_model_scores_a_data_set_whose_rows_tell_all(findings, tmp_path):
    """The label spaces differ in nothing but whether rows may leave entries open."""
    whole = unknown_dataset(tmp_path / "whole", unknown=False)
    job_data = JobData.of(open_job(findings, epochs=1), tmp_path)
    run_experiment(job_data, folder=tmp_path / "run", context=CPU, listener=lambda _: None)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {"run_id": "r", "name": "a"})
    told = Labelling(load_model(tmp_path / "model", "cpu"), whole, "test").run(lambda _: None)
    assert "test/micro_f1" in told.metrics


def test_a_metric_that_does_not_leave_unknown_entries_out_chooses_nothing(findings, tmp_path, monkeypatch):
    unmasked = replace(METRICS["map"], masked=False)
    plain = Registry.__getitem__
    monkeypatch.setattr(
        Registry,
        "__getitem__",
        lambda self, name: unmasked if self is METRICS and name == "map" else plain(self, name),
    )
    with pytest.raises(UserError, match="does not leave out the unknown entries of findings") as error:
        JobData.of(open_job(findings, "evaluation.metric=val/map"), tmp_path)
    assert error.value.key == "evaluation.metric"


def test_a_transfer_is_scored_on_known_entries(findings, tmp_path):
    transfer = f"evaluation.transfer_to={{path: {findings}, labels: findings, metric: micro_f1}}"
    job_data = JobData.of(open_job(findings, transfer, epochs=1), tmp_path)
    found = run_experiment(job_data, folder=tmp_path / "run", context=CPU, listener=lambda _: None).metrics
    assert 0 <= found["transfer/test/micro_f1"] <= 1
    assert found["transfer/test/labels_scored"] == 5


def test_an_unknown_entry_of_training_is_no_negative(findings, tmp_path):
    """One more unknown positive of a row changes the loss; calling it absent would, too, in another way."""
    split = Dataset.open(findings).split("train")
    rows = split.labels("findings")
    logits = torch.randn(len(rows), 5, generator=torch.Generator().manual_seed(0))
    masked, plain = (value_of(BinaryCrossEntropy(), each, logits) for each in (rows, rows.without_unknown()))
    known = rows.known()
    terms = nn.functional.binary_cross_entropy_with_logits(logits, rows.dense(), reduction="none")
    assert masked.item() == pytest.approx(terms[known].mean().item(), rel=1e-6)
    assert masked.item() != pytest.approx(plain.item(), rel=1e-3)
