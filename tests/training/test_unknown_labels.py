"""Tests of unknown labels in a run and its exported model; test_classifier.py tests their loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import tiny_job, unknown_dataset
from stored_runs import UNKNOWN, exported, run

from mlcl.errors import UserError
from mlcl.evaluation import METRICS
from mlcl.plugins import Registry
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return unknown_dataset(tmp_path_factory.mktemp("unknown") / "data")


def open_job(data, *overrides, **train):
    return tiny_job(data, *UNKNOWN, *overrides, **train)


def test_heads_get_labels_alone_and_the_classifier_their_unknown_entries(findings, tmp_path):
    job_data = JobData.of(open_job(findings), tmp_path)
    rows = job_data.encode(job_data.train)
    assert rows.labels["sets"].unknown is None
    assert rows.labels["sets"].lists() == rows.labels["classifier"].lists()
    batch = rows.batch(torch.tensor([3, 7]), 2, torch.device("cpu"))
    expected = [job_data.train.labels("findings").unknown.lists()[i] for i in (3, 7, 3, 7)]
    assert batch.labels["classifier"].unknown.lists() == expected


def test_a_model_scores_a_data_set_whose_rows_tell_all(findings, tmp_path):
    """Tests that a model scores a data set whose label space differs only in having no unknown entries."""
    known_data = unknown_dataset(tmp_path / "whole", unknown=False)
    _, folder = exported(open_job(findings, epochs=1), tmp_path)
    result = Labelling(load_model(folder, "cpu"), known_data, "test").run(lambda _: None)
    assert "test/micro_f1" in result.metrics


def test_a_metric_that_does_not_leave_unknown_entries_out_chooses_nothing(findings, tmp_path, monkeypatch):
    unmasked = replace(METRICS["map"], masked=False)
    original = Registry.__getitem__
    monkeypatch.setattr(
        Registry,
        "__getitem__",
        lambda self, name: unmasked if self is METRICS and name == "map" else original(self, name),
    )
    with pytest.raises(UserError, match="does not leave out the unknown entries of findings") as error:
        JobData.of(open_job(findings, "evaluation.metric=val/map"), tmp_path)
    assert error.value.key == "evaluation.metric"


def test_a_transfer_is_scored_on_known_entries(findings, tmp_path):
    transfer = f"evaluation.transfer_to={{path: {findings}, labels: findings, metric: micro_f1}}"
    _, metrics = run(open_job(findings, transfer, epochs=1), tmp_path)
    assert 0 <= metrics["transfer/test/micro_f1"] <= 1
    assert metrics["transfer/test/labels_scored"] == 5


@pytest.mark.parametrize("how", [(), ("baseline=majority", "objective.heads={}", "evaluation.knn=null")])
def test_test_rows_without_labels_give_no_figures(tmp_path, how):
    events = []
    job = open_job(unknown_dataset(tmp_path / "data", unlabelled="test"), *how, epochs=1)
    job_data, metrics = run(job, tmp_path, events=events)
    assert "val/micro_f1" in metrics
    assert not any("test/" in name for name in metrics)
    notes = [event.note for event in events if event.kind == "note"]
    assert "no test row has a label of findings: there are no test figures" in notes
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    result = Labelling(load_model(tmp_path / "model", "cpu"), tmp_path / "data").run(lambda _: None)
    assert (result.rows, result.metrics) == (24, {})
    if not how:
        stored_run = StoredRun.read(tmp_path / "run", job_data)
        assert np.isnan(stored_run.grid([1], [0.5], [1.0])["test"]).all()


@pytest.mark.parametrize(("split", "word"), [("train", "training"), ("validation", "validation")])
def test_a_split_without_labels_trains_and_chooses_nothing(tmp_path, split, word):
    with pytest.raises(UserError, match=f"no {word} row has a label of it; found: findings") as error:
        JobData.of(open_job(unknown_dataset(tmp_path / "data", unlabelled=split)), tmp_path)
    assert error.value.key == "objective.classifier.labels"
