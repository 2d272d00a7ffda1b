"""Tests of held-out classes in a run: training, metrics, resumption, stored files and export."""

import json
import math
from pathlib import Path

import pytest
import torch
from builders import rare_class_dataset, tiny_job
from reproduced import Tables
from stored_runs import run

from mlcl.data import Dataset, hold_out
from mlcl.data.validation_rows import redraw_validation
from mlcl.errors import UserError
from mlcl.evaluation import FewShot, Setting
from mlcl.labels import LabelRows
from mlcl.service.tables.plan import run_metrics
from mlcl.service.tables.trainings import check_table
from mlcl.testing.datasets import small_dataset
from mlcl.training.events import Stopped
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

HELD = "data.hold_out={labels: path, share: 0.5, seed: 1}"
TAGS = (
    "data.hold_out={labels: tags, share: 0.4}",
    "objective.heads={}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)


def test_a_run_trains_without_the_classes_counts_them_and_what_it_left_is_read_and_exported(tiny, tmp_path):
    job_data, metrics = run(tiny_job(tiny, HELD, epochs=12), tmp_path)
    assert job_data.dataset.info.held_out.classes == (0, 2)
    for name, rows in (("train", 24), ("validation", 12), ("test", 12)):
        split = job_data.train if name == "train" else job_data.dataset.split(name)
        assert sorted(set(split.labels("detail").tolist())) == [1, 3]
        assert len(split) == rows
    assert metrics["test/accuracy"] > 0.9
    assert (metrics["unseen/classes"], metrics["unseen/rows"]) == (2, 12)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == metrics
    stored_run = StoredRun.read(tmp_path / "run", job_data)
    knn_metrics = stored_run.metrics(Setting(3, 0.5, 1.0))
    assert knn_metrics["knn/test/accuracy"] == pytest.approx(metrics["knn/test/accuracy"])
    index = write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    assert index.metrics == metrics
    assert index.provenance["data_fingerprint"] == job_data.fingerprint
    model, split = load_model(tmp_path / "model"), job_data.dataset.split("test")
    result = Labelling(model, tiny).run(lambda _: None)
    assert result.rows == len(split) < len(Dataset.open(tiny).split("test"))
    assert result.metrics == {name: metrics[name] for name in result.metrics}
    output = model.outputs(split.texts(), split.ids)
    torch.testing.assert_close(model.probabilities(output, "classifier"), stored_run.probabilities["test"])


def test_other_classes_are_other_data(tiny, tmp_path):
    job = tiny_job(tiny, HELD)
    with pytest.raises(Stopped):
        run(job, tmp_path, should_stop=lambda: True)
    identity = JobData.of(job, tmp_path).fingerprint
    full_fingerprint = JobData.of(tiny_job(tiny), tmp_path).fingerprint
    assert full_fingerprint == Dataset.open(tiny).info.fingerprint != identity
    with pytest.raises(UserError, match="checkpoint of something else"):
        run(tiny_job(tiny), tmp_path)


def test_a_search_trial_reads_no_test_rows(tiny, tmp_path, monkeypatch):
    split_names = []
    unseen, split = Dataset.unseen, Dataset.split
    monkeypatch.setattr(Dataset, "unseen", lambda self, name: split_names.append(name) or unseen(self, name))
    monkeypatch.setattr(Dataset, "split", lambda self, name: split_names.append(name) or split(self, name))
    _, metrics = run(tiny_job(tiny, HELD, epochs=1), tmp_path, test=False)
    assert "test" not in split_names
    assert not [name for name in metrics if "unseen" in name]


@pytest.mark.parametrize("settings", [(HELD,), TAGS])
def test_the_figures_are_those_of_the_rows_that_left_and_a_table_knows_them(tiny, tmp_path, settings):
    job_data, metrics = run(tiny_job(tiny, *settings), tmp_path)
    assert {name for name in metrics if "val/" in name or "test/" in name} == set(run_metrics(job_data))
    figures = {name for name in metrics if name.startswith("unseen/1nn/test/")}
    metric_names = ("micro_f1", "macro_f1", "map") if settings is TAGS else ("accuracy", "macro_f1")
    assert figures == {f"unseen/1nn/test/{name}" for name in metric_names}
    assert not [name for name in run_metrics(JobData.of(tiny_job(tiny), tmp_path)) if "unseen" in name]
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    model, classes = load_model(tmp_path / "model"), job_data.dataset.info.held_out.classes
    split_pairs = [(Dataset.open(tiny).split(name), []) for name in ("train", "test")]
    for split, pairs in split_pairs:
        labels = split.labels(job_data.dataset.info.held_out.labels)
        lists = labels.lists() if job_data.task == "multi_label" else [[c] for c in labels.tolist()]
        for row, row_labels in enumerate(lists):
            indices = [classes.index(c) for c in row_labels if c in classes]
            if indices:
                pairs.append((model.outputs([split.texts()[row]], ["row"])[0], indices))
    (x, train), (q, test) = (
        [torch.stack(x), y] for _, pairs in split_pairs for x, y in [zip(*pairs, strict=True)]
    )
    if job_data.task == "multi_label":
        train, test = (LabelRows.from_lists(index_lists, 2) for index_lists in (train, test))
    else:
        train, test = (torch.tensor(index_lists).flatten() for index_lists in (train, test))
    rows = FewShot(x, train, job_data.task, 2)
    seed = job_data.job.data.hold_out.seed
    probe = rows.probe(q, test, shots=5, draws=10, seed=seed)
    expected = {f"unseen/1nn/test/{name}": value for name, value in rows.nearest(q, test).items()}
    expected |= {f"unseen/5shot/test/{name}": value for name, value in probe.items()}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert metrics["unseen/rows"] == len(test)


def test_without_such_test_rows_the_figures_have_no_value(tiny, tmp_path, monkeypatch):
    unseen = Dataset.unseen
    monkeypatch.setattr(Dataset, "unseen", lambda self, name: None if name == "test" else unseen(self, name))
    _, metrics = run(tiny_job(tiny, HELD, epochs=1), tmp_path)
    assert metrics["unseen/rows"] == 0
    assert math.isnan(metrics["unseen/5shot/test/accuracy"])


def test_an_exported_model_finds_the_validation_rows_of_its_run(tmp_path):
    """Tests that rows and held-out classes are the run's own, although drawn rows have few of one class."""
    data = Dataset.open(rare_class_dataset(tmp_path / "data"))
    overrides = ("data.hold_out={labels: detail, share: 0.5}", "objective.heads={}")
    job_data, _ = run(tiny_job(data.place, "data.validation_seed=1", *overrides, epochs=1), tmp_path)
    redrawn_data = redraw_validation(data, 1)
    held_out = job_data.dataset.info.held_out
    assert held_out == hold_out(data, "detail", 0.5, 0).info.held_out
    assert held_out != hold_out(redrawn_data, "detail", 0.5, 0).info.held_out
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    model, batches = load_model(tmp_path / "model"), []
    Labelling(model, Path(data.place), "validation").run(batches.append)
    assert batches[0]["id"] == job_data.dataset.split("validation").ids
    assert set(batches[0]["id"]) < set(redrawn_data.split("validation").ids)
    other_data = small_dataset(tmp_path / "other", "text")  # a data set without the label space `detail`
    assert Labelling(model, other_data).run(lambda _: None).rows == 12


def test_a_table_with_held_out_classes_finds_its_runs_again(tiny, tmp_path, monkeypatch):
    overrides = {"data.hold_out": {"labels": "path", "share": 0.5}}
    tables = Tables(tmp_path / "home", monkeypatch, tiny)
    plan = tables.plan({"set": overrides, "seed_keys": ["train.seed", "data.hold_out.seed"]})
    runs = check_table(plan, tables.home)
    assert len(runs) == 4
    for training in runs:
        assert training.key[1] == JobData.of(training.job, tables.home).fingerprint
    assert len({training.key[1] for training in runs}) == 2
