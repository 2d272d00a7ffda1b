"""Tests of hierarchies with missing or conflicting parents, from the data set to the exported model."""

import pytest
import torch
from builders import DETAILS, dataset, tiny_job
from stored_runs import run

from mlcl.data.format import LabelSpace
from mlcl.errors import UserError
from mlcl.evaluation import AT_HALF
from mlcl.service.tables.plan import run_metrics
from mlcl.training.export import load_model, write_export
from mlcl.training.export.labelling import Labelling
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

pytestmark = pytest.mark.usefixtures("one_thread")

HIERARCHY = ("hierarchical_precision", "hierarchical_recall", "hierarchical_f1")
NO_HEADS = "objective.heads={}"
JOB = ("evaluation.metrics=[hierarchy]", "evaluation.metric=knn/val/hierarchical_f1")


def written(folder, change=lambda rows: rows, levels=("topic", "detail")):
    """Writes 80 texts of four details below two topics; `change` can edit rows of split, detail and topic."""
    splits = ["train"] * 48 + ["validation"] * 16 + ["test"] * 16
    rows = change([[split, i % 4, i % 4 // 2] for i, split in enumerate(splits)])
    columns = {
        "text": [f"{DETAILS[detail]} noise{i % 5}" for i, (_, detail, _) in enumerate(rows)],
        **{name: [row[column] for row in rows] for column, name in enumerate(("split", "detail", "topic"))},
    }
    spaces = {"topic": ("sport", "state"), "detail": DETAILS}
    if "field" in levels:
        spaces["field"], columns["field"] = ("any",), [0] * len(rows)
    if levels:
        spaces["path"] = LabelSpace(kind="hierarchy", levels=levels)
    return dataset(folder, "odd", spaces, columns)


def blank(*numbers):
    return lambda rows: [[*row[:2], None if i in numbers else row[2]] for i, row in enumerate(rows)]


def perfect(job_data, name):
    """Returns the metrics of a prediction that is right for every row."""
    split = job_data.dataset.split(name)
    p = torch.nn.functional.one_hot(split.labels("detail"), 4).float()
    return job_data.metrics()(name, p, split, AT_HALF)


def test_blank_parents_of_the_last_training_rows_spoil_neither_figures_nor_predictions(tmp_path):
    data = written(tmp_path / "data", blank(*range(40, 48), 50, 70))
    job_data, metrics = run(tiny_job(data, *JOB), tmp_path)
    assert job_data.facts.path.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    for name in ("validation", "test"):
        scores = perfect(job_data, name)
        assert {scores[f"{name}/{metric}"] for metric in (*HIERARCHY, "accuracy_topic")} == {1.0}
        assert scores[f"{name}/lca_distance"] == 0
    grid = StoredRun.read(tmp_path / "run", job_data).grid((1, 3), (0, 0.5, 1), (1.0,))
    best = grid[grid["val"].argmax()]
    assert metrics["knn_best/val/hierarchical_f1"] == best["val"]
    assert metrics["knn_best/test/hierarchical_f1"] == best["test"]
    write_export(tmp_path / "model", tmp_path / "run", job_data, {"run_id": "r1", "name": "a"})
    columns = []
    Labelling(load_model(tmp_path / "model"), data).run(columns.append)
    assert set(columns[0]["label.topic"]) <= {"sport", "state"}


def test_groups_of_metrics_are_left_out_where_another_data_set_has_another_hierarchy(tmp_path):
    data = written(tmp_path / "data")
    job_data, metrics = run(tiny_job(data, *JOB), tmp_path)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    model = load_model(tmp_path / "model", "cpu")
    level_sets = {"deeper": ("field", "topic", "detail"), "flat": (), "equal": ("topic", "detail")}
    for name, levels in level_sets.items():
        other = written(tmp_path / name, lambda rows: rows[:-1], levels)
        result_metrics = Labelling(model, other).run(lambda _: None).metrics
        assert ("test/hierarchical_f1" in result_metrics) == (name != "deeper")
        assert "test/accuracy_topic" in result_metrics
    result_metrics = Labelling(model, data).run(lambda _: None).metrics
    assert result_metrics["test/lca_distance"] == metrics["test/lca_distance"]


def test_rows_of_the_test_split_with_another_parent_count_as_wrong_at_that_level(tmp_path):
    def change(rows):
        return [[*row[:2], 1 if row[:2] == ["test", 0] else row[2]] for row in rows]

    scores = perfect(JobData.of(tiny_job(written(tmp_path / "data", change), *JOB), tmp_path), "test")
    assert (scores["test/accuracy"], scores["test/accuracy_topic"]) == (1, 0.75)
    assert {scores[f"test/{metric}"] for metric in HIERARCHY} == {7 / 8}
    assert scores["test/lca_distance"] == 0.25


@pytest.mark.parametrize("row", [47, 63])
def test_a_training_on_a_class_with_two_parents_does_not_start(tmp_path, row):
    def change(rows):
        return [[*values[:2], 0 if i == row else values[2]] for i, values in enumerate(rows)]

    job = tiny_job(written(tmp_path / "data", change), *JOB)
    with pytest.raises(UserError, match=rf"law has a second parent in topic at row \d+, id {row}") as error:
        JobData.of(job, tmp_path)
    assert error.value.found[1] == "sport (1 rows)"


def test_noise_knows_the_parents_where_redrawn_validation_has_another_number_of_rows(tmp_path):
    rows = {
        "text": [f"{DETAILS[i % 4]} {DETAILS[i // 4 % 4]} {DETAILS[i // 16]}" for i in range(48)],
        "split": ["train"] * 33 + ["validation"] * 7 + ["test"] * 8,
        "topic": [i % 4 // 2 for i in range(48)],
        "detail": [i % 4 for i in range(48)],
        "row.group": [f"g{i // 5}" for i in range(48)],  # groups of five cannot give exactly seven rows
    }
    spaces = {"topic": ("sport", "state"), "detail": DETAILS}
    spaces["path"] = LabelSpace(kind="hierarchy", levels=("topic", "detail"))
    data = dataset(tmp_path / "data", "grouped", spaces, rows, grouped=True)
    job_data = JobData.of(tiny_job(data, "data.validation_seed=1", "data.label_noise.rate=0.5"), tmp_path)
    assert job_data.dataset.info.rows["validation"] != 7
    noisy = job_data.train.labels("detail")
    assert not torch.equal(noisy, job_data.dataset.split("train").labels("detail"))
    assert torch.equal(job_data.train.labels("topic"), noisy // 2)


@pytest.mark.parametrize(
    "settings",
    [
        ("evaluation.metrics=[hierarchy]",),
        (NO_HEADS, "objective.classifier.loss=guided", "train.sampler={name: hierarchical, k: 2}"),
        (NO_HEADS, "data.label_noise.rate=0.3"),
    ],
)
def test_a_level_by_the_name_of_its_hierarchy_has_the_same_figures(tmp_path, settings):
    data, metrics = written(tmp_path / "data"), {}
    for labels in ("detail", "path.detail"):
        job = tiny_job(data, *settings, f"objective.classifier.labels={labels}", epochs=1)
        job_data, metrics[labels] = run(job, tmp_path, tmp_path / labels)
        names = {name for name in metrics[labels] if "val/" in name or "test/" in name}
        assert names == set(run_metrics(job_data))
        write_export(tmp_path / f"{labels}-model", tmp_path / labels, job_data, {})
        predictions = load_model(tmp_path / f"{labels}-model", "cpu").predict(["ball"])
        assert list(predictions.columns) == ["label", "probability", "label.topic"]
    assert "test/accuracy_topic" in metrics["detail"]
    assert metrics["path.detail"] == metrics["detail"]
