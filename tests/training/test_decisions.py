"""Tests of decisions on labels, which are chosen on validation, stored, and used by the export."""

import json

import pytest
import torch
from builders import tiny_job
from stored_runs import TAGS, TASKS, run, trained

from mlcl.data import Dataset
from mlcl.evaluation import AT_HALF, Decision, choose, evaluate
from mlcl.training.builders import build_model
from mlcl.training.context import ONE_PROCESS
from mlcl.training.evaluator import Evaluator
from mlcl.training.export import load_model, write_export
from mlcl.training.job_data import JobData
from mlcl.training.run_files import DECISIONS, MODEL
from mlcl.training.stored_run import StoredRun

GRID = "evaluation.knn.grid={k: [1, 3], lambda: [0.0, 0.5], temperature: [1.0]}"
PREDICTORS = {"classifier": "", "knn": "knn/", "knn_best": "knn_best/"}


def kept(folder):
    document = json.loads((folder / MODEL / DECISIONS).read_text())
    return {predictor: Decision.from_json(decision) for predictor, decision in document.items()}


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    return trained(tiny, tmp_path_factory.mktemp("home"), *TAGS, GRID)


def test_each_way_has_the_threshold_that_validation_chooses(finished):
    folder, job_data, metrics = finished
    run, decisions = StoredRun.read(folder, job_data), kept(folder)
    targets = job_data.targets(run.split("validation"))
    assert decisions["classifier"] == choose(run.probabilities["validation"], targets, "global", "micro_f1")
    assert decisions.keys() == PREDICTORS.keys()
    for predictor, prefix in PREDICTORS.items():
        assert metrics[f"{prefix}threshold"] == decisions[predictor].thresholds[0]
        assert metrics[f"{prefix}val/micro_f1"] >= metrics[f"{prefix}val/micro_f1_at_half"]


def test_figures_at_one_half_stand_beside(finished):
    folder, job_data, metrics = finished
    run, decision = StoredRun.read(folder, job_data), kept(folder)["classifier"]
    for split, name in (("validation", "val"), ("test", "test")):
        data = run.probabilities[split], job_data.targets(run.split(split))
        metrics_chosen, metrics_half = (
            evaluate("multi_label", *data, threshold) for threshold in (decision, AT_HALF)
        )
        split_metrics = {key: value for key, value in metrics.items() if key.startswith(f"{name}/")}
        names_at_half = ("micro_f1", "macro_f1", "macro_f1_caml", "hamming_loss", "subset_accuracy")
        expected = metrics_chosen | {f"{key}_at_half": metrics_half[key] for key in names_at_half}
        prefixed = {f"{name}/{key}": value for key, value in expected.items()}
        assert split_metrics == pytest.approx(prefixed, nan_ok=True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("threshold", ["0.5", "per_label"])
def test_other_tasks_ignore_it_and_a_given_threshold_needs_no_figures_beside(task, threshold, tiny, tmp_path):
    per_label = task == "multi_label" and threshold == "per_label"
    folder, _, metrics = trained(tiny, tmp_path, *TASKS[task], f"evaluation.threshold={threshold}", epochs=1)
    assert any(key.endswith("_at_half") for key in metrics) == per_label
    assert not any(key.endswith("threshold") for key in metrics)
    assert len(kept(folder)["classifier"].thresholds) == (5 if per_label else 1)


def test_at_least_one(tiny, tmp_path):
    folder, job_data, _ = trained(tiny, tmp_path, *TAGS, "evaluation.at_least_one=true", epochs=1)
    write_export(tmp_path / "model", folder, job_data, {"run_id": "r1"})
    assert all(load_model(tmp_path / "model", "cpu").predict(["ball", ""]).labels)


def test_a_user_hears_that_no_label_is_predicted(tiny, tmp_path):
    events = []
    job_data, _ = run(tiny_job(tiny, *TAGS, "evaluation.threshold=0.9999", epochs=1), tmp_path, None, events)
    targets = job_data.targets(job_data.dataset.split("validation"))
    probabilities = StoredRun.read(tmp_path / "run", job_data).probabilities["validation"]
    best = choose(probabilities, targets, "global", "micro_f1").thresholds[0]
    text = f"0 labels predicted at 0.9999; the best threshold on validation is {best:.2g}"
    assert [event.note for event in events if event.kind == "note"] == [text]
    # The first metric matters because the progress of a run shows it.
    assert [next(iter(event.metrics)) for event in events if event.kind == "validation"] == ["val/micro_f1"]


@pytest.mark.parametrize("setting", ["evaluation.threshold=top_k", "evaluation.at_least_one=true"])
def test_no_note_on_a_threshold_where_each_row_has_a_label(setting, tiny, tmp_path):
    job_data = JobData.of(tiny_job(tiny, *TAGS, setting), tmp_path)
    evaluator = Evaluator(job_data, build_model(job_data), ONE_PROCESS)
    assert evaluator._threshold_notes(torch.full((24, 5), 0.1)) == []


def test_the_validation_of_an_epoch_uses_the_threshold_too(tiny, tmp_path):
    events = []
    run(tiny_job(tiny, *TAGS, epochs=1), tmp_path, None, events)
    epoch, final = [event.metrics for event in events if "val/micro_f1" in event.metrics]
    assert epoch.items() <= final.items()
    assert epoch["val/micro_f1"] > epoch["val/micro_f1_at_half"]


@pytest.mark.parametrize("threshold", ["global", "per_label", "top_k"])
def test_an_export_predicts_with_each_ways_decision(threshold, tiny, tmp_path):
    job = (*TAGS, GRID, f"evaluation.threshold={threshold}")
    folder, job_data, metrics = trained(tiny, tmp_path, *job)
    write_export(tmp_path / "model", folder, job_data, {"run_id": "r1"})
    assert metrics.get("top_k") == kept(folder)["classifier"].k
    model, texts = load_model(tmp_path / "model", "cpu"), Dataset.open(tiny).split("test").texts()
    assert model.index.decisions == kept(folder)
    for predictor, decision in kept(folder).items():
        predictions = model.predict(texts, predictor=predictor)
        expected = decision.predict(predictions.probabilities)
        names = [
            [name for name, is_predicted in zip("abcde", row, strict=True) if is_predicted]
            for row in expected
        ]
        assert predictions.labels == names
    at_half = model.predict(texts, threshold=0.5)
    assert at_half.labels == [
        [name for name, p in zip("abcde", row, strict=True) if p >= 0.5] for row in at_half.probabilities
    ]
    assert "top_k" != threshold or "most probable" in (tmp_path / "model" / "README.md").read_text()
