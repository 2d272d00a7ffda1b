"""Tests of `init`, a training and `predict` on files in public layouts, without any change to the files."""

import csv
import shlex

import pytest
import torch
from commands import mlcl
from service.starter.layouts import LAYOUTS

from mlcl.config import load_job
from mlcl.data import Dataset
from mlcl.data.validation import check
from mlcl.service.starter import first_job
from mlcl.service.starter.starter import start
from mlcl.testing.sources import put
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.export import write_export
from mlcl.training.job_data import JobData


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_public_layout_is_read_trained_on_and_predicted(name, tmp_path, monkeypatch):
    monkeypatch.setattr(first_job, "MODEL", "package:no-such-package")
    monkeypatch.setattr(first_job, "has_words", lambda: False)
    monkeypatch.chdir(tmp_path)
    layout = LAYOUTS[name]
    put(tmp_path / "in", layout.files)
    paths = [tmp_path / "in" / path for path in layout.paths or layout.files]
    starter = start(paths, tmp_path, tmp_path / "home", layout.options)
    text = "\n".join(starter.found)
    assert [part for part in layout.says if part not in text] == [], text
    job = load_job(starter.files[0], ["train.epochs=2", "evaluation.every=1"])
    labels = job.objective.classifier.labels
    classes = Dataset.open(starter.data).info.space(labels).classes
    assert {name.rpartition(" > ")[2] for name in classes} == set(layout.labels)
    assert check(starter.data).rows == dict(Dataset.open(starter.data).info.rows)
    data, context = JobData.of(job, tmp_path / "home"), Context(torch.device("cpu"))
    run_experiment(data, folder=tmp_path / "run", context=context, listener=lambda _: None)
    write_export(tmp_path / "model", tmp_path / "run", data, {})
    line = next(line for line in starter.files[2].read_text().splitlines() if line.startswith("mlcl predict"))
    answer = mlcl(*shlex.split(line)[1:], "--out", "out.csv", "--device", "cpu")
    assert answer.status == 0, answer.err
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert len(rows) >= 80
    assert {row["id"] for row in rows if row["error"]} <= {"Training/law/notes.txt"}
