"""Tests that groups of metrics in a job change no other metric and equal those of `evaluate`."""

from dataclasses import replace

import pytest
from builders import dataset, tiny_job, tree_dataset
from stored_runs import TAGS, run

from mlcl.data import Dataset
from mlcl.data.format import LabelSpace
from mlcl.errors import UserError
from mlcl.evaluation import METRICS, evaluate, evaluate_embeddings
from mlcl.labels import LabelRows
from mlcl.service.tables.plan import run_metrics
from mlcl.training.job_data import JobData
from mlcl.training.split_metrics import paths
from mlcl.training.stored_run import StoredRun

JOBS = {
    "single": ("evaluation.metrics=[bands, hierarchy, retrieval, clustering]",),
    "multi_label": (*TAGS,
        "evaluation.metrics=[bands, calibration, hierarchy, ranking, retrieval, clustering]",
        "evaluation.bands=[8, 7]", "evaluation.metric=val/tail_micro_f1", "evaluation.threshold=0.5"),
    "aspects": ("evaluation.metrics=[bands, retrieval]", "objective.heads={}",
        "objective.classifier.labels=ratings"),
}  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    return tree_dataset(tmp_path / "tree")


def job_of(task, tiny, tree, *more):
    return tiny_job(tree if task == "multi_label" else tiny, *JOBS[task], *more)


@pytest.mark.parametrize("task", JOBS)
def test_the_figures_are_those_of_evaluate(tiny, tree, tmp_path, task):
    job_data, metrics = run(job_of(task, tiny, tree), tmp_path)
    assert job_data.task == task
    stored_run = StoredRun.read(tmp_path / "run", job_data)
    split, groups = stored_run.split("test"), job_data.job.evaluation.metrics
    names = [name for name in METRICS if METRICS[name].group in groups and f"test/{name}" in metrics]
    assert {METRICS[name].group for name in names} == {*groups}
    embedding_metrics = evaluate_embeddings(stored_run.embeddings["test"], sets(job_data, split), groups)
    label_metrics = evaluate(
        task,
        stored_run.probabilities["test"],
        job_data.targets(split),
        aspects=job_data.space.aspects or None,
        only=[name for name in names if name not in embedding_metrics],
        facts=job_data.facts,
    )
    actual = {name: metrics[f"test/{name}"] for name in names}
    assert actual == pytest.approx(embedding_metrics | label_metrics, nan_ok=True)


def sets(job_data, split):
    targets = job_data.targets(split)
    if isinstance(targets, LabelRows):
        return targets
    rows = targets.reshape(len(targets), -1).tolist()
    ratings = LabelRows.from_lists([[a * 4 + c for a, c in enumerate(row) if c >= 0] for row in rows], 8)
    if targets.ndim == 1:
        return ratings
    unknown = [[a * 4 + c for a in range(2) for c in range(4) if row[a] < 0] for row in rows]
    return replace(ratings, unknown=LabelRows.from_lists(unknown, 8))


@pytest.mark.parametrize("task", ["single", "aspects"])
def test_a_group_changes_no_other_figure(tiny, tree, tmp_path, task):
    _, metrics = run(job_of(task, tiny, tree), tmp_path, tmp_path / "with")
    _, base_metrics = run(job_of(task, tiny, tree, "evaluation.metrics=[]"), tmp_path, tmp_path / "without")
    assert base_metrics == {name: metrics[name] for name in base_metrics}
    added_names = {name.rpartition("/")[2] for name in metrics.keys() - base_metrics.keys()}
    assert {METRICS[name].group for name in added_names} == {*job_of(task, tiny, tree).evaluation.metrics}


def test_facts_are_of_the_training_rows(tiny, tree, tmp_path):
    facts = JobData.of(tiny_job(tiny, "data.subset={n: 20}", "evaluation.bands=[5, 5]"), tmp_path).facts
    assert facts.band.tolist() == [1, 1, 1, 1]
    assert facts.path.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    tree_facts = JobData.of(job_of("multi_label", tiny, tree), tmp_path).facts
    assert tree_facts.path.tolist() == [[leaf // 2, leaf] for leaf in range(6)]
    aspects = JobData.of(tiny_job(tiny, *JOBS["aspects"]), tmp_path).facts
    assert aspects.band.shape == (2, 4)
    assert aspects.path is None


def test_a_class_whose_parent_no_row_tells_has_its_own(tmp_path):
    spaces = {"coarse": ("x", "y"), "fine": tuple("abcd")}
    spaces["path"] = LabelSpace(kind="hierarchy", levels=("coarse", "fine"))
    rows = {"text": ["a"] * 4, "split": [*["train"] * 3, "test"]}
    rows |= {"coarse": [0, 1, -1, 1], "fine": [0, 1, 2, 2]}
    data = Dataset.open(dataset(tmp_path / "data", "odd", spaces, rows))
    assert paths(data, "fine").tolist() == [[0, 0], [1, 1], [4, 2], [5, 3]]
    assert paths(data, "coarse") is None


def test_a_group_may_choose(tiny, tree, tmp_path):
    job = job_of("multi_label", tiny, tree, "evaluation.metric=knn/val/hierarchical_f1", "train.patience=1")
    job_data, metrics = run(job, tmp_path)
    assert job_data.scoring.metric == "hierarchical_f1"
    grid = StoredRun.read(tmp_path / "run", job_data).grid((1, 3), (0, 0.5, 1), (1.0,))
    assert metrics["knn_best/val/hierarchical_f1"] == max(grid["val"])


def test_a_band_without_labels_chooses_nothing(tree, tiny, tmp_path):
    with pytest.raises(UserError, match="no validation row has a label in this band") as error:
        JobData.of(job_of("multi_label", tiny, tree, "evaluation.bands=[1, 9]"), tmp_path)
    assert error.value.key == "evaluation.metric"


def test_a_band_that_no_validation_row_is_of_chooses_nothing(tmp_path):
    detail = [*[0, 1] * 12, 2, 2, *[0, 1] * 3, 0, 1, 2]
    splits = ["train"] * 26 + ["validation"] * 6 + ["test"] * 3
    rows = {"text": [f"word{c}" for c in detail], "split": splits, "detail": detail}
    dataset(tmp_path / "data", "rare", {"detail": tuple("abc")}, rows)
    overrides = ("objective.heads={}", "evaluation.metrics=[bands]", "evaluation.bands=[5, 10]")
    head_job, tail_job = (
        tiny_job(tmp_path / "data", *overrides, f"evaluation.metric=val/{band}_accuracy")
        for band in ("head", "tail")
    )
    assert JobData.of(head_job, tmp_path).facts.band.tolist() == [0, 0, 2]
    with pytest.raises(UserError, match="no validation row has a label in this band"):
        JobData.of(tail_job, tmp_path)


def test_an_aspect_that_no_validation_row_rates_chooses_nothing(tmp_path):
    splits = ["train"] * 6 + ["validation"] * 4 + ["test"] * 2
    ratings = [[1 + i % 2, 0 if split == "validation" else 1] for i, split in enumerate(splits)]
    space = LabelSpace(kind="aspects", aspects=("word", "price"), scale=(1, 2))
    rows = {"text": [f"word{i}" for i in range(12)], "split": splits, "ratings": ratings}
    dataset(tmp_path / "data", "hotels", {"ratings": space}, rows)
    overrides = ("objective.heads={}", "objective.classifier={loss: cross_entropy, labels: ratings}")
    word_job, price_job = (
        tiny_job(tmp_path / "data", *overrides, f"evaluation.metric=val/accuracy_{aspect}")
        for aspect in ("word", "price")
    )
    assert JobData.of(word_job, tmp_path).scoring.metric == "accuracy_word"
    with pytest.raises(UserError, match="no validation row has a rating of this aspect") as error:
        JobData.of(price_job, tmp_path)
    assert error.value.key == "evaluation.metric"


def test_a_baseline_has_the_groups_of_predictions(tiny, tmp_path):
    job = tiny_job(tiny, *JOBS["single"], "baseline=majority")
    job_data, metrics = run(job, tmp_path)
    assert "test/lca_distance" in metrics
    assert not [name for name in metrics if name.endswith(("nmi", "ari")) or "retrieval" in name]
    assert set(run_metrics(job_data)) == {name for name in metrics if name.startswith(("val/", "test/"))}
