"""Refusals of a sweep before anything starts."""

import pytest
import yaml
from builders import text_dataset, tiny_job

from mlcl.config import load_space
from mlcl.errors import UserError
from mlcl.service.search.plan_checks import check_plan
from mlcl.service.search.sweep_plan import SweepPlan


def plan_of(tmp_path, job, text="space: {train.lr: {log_float: [0.001, 0.1]}}", **how):
    (tmp_path / "space.yaml").write_text(text)
    settings = {"name": "sweep", "trials": 2, "seeds": 1, "baselines": []} | how
    return SweepPlan(job, load_space(tmp_path / "space.yaml", job), text, **settings)


def test_the_score_is_the_best_over_free_keys_where_there_are_any(tiny, tmp_path):
    job = tiny_job(tiny)
    assert plan_of(tmp_path, job).score == "val/accuracy"
    free = yaml.safe_dump({"space": {"evaluation.knn.k": {"choice": [1, 3]}}})
    assert plan_of(tmp_path, job, free).score == "knn_best/val/accuracy"
    knn = tiny_job(tiny, "evaluation.metric=knn/val/accuracy")
    assert plan_of(tmp_path, knn, free).score == "knn_best/val/accuracy"


def test_what_is_refused(tiny, tmp_path):
    job = tiny_job(tiny)
    other = tiny_job(text_dataset(tmp_path / "other", seed=1))
    topic = tiny_job(tiny, "objective.classifier.labels=topic")
    refused = {
        "did you mean detail": {"text": "space: {objective.heads.detail.labels: {choice: [detail, detial]}}"},
        "takes the other direction": {
            "text": "space: {evaluation.knn.k: {choice: [1, 3]}}\nsearch: {mode: min}"
        },
        "a baseline needs the swept job's": {"baselines": [("b", other)]},
        r"objective\.classifier\.labels": {"baselines": [("b", topic)]},
    }
    for message, how in refused.items():
        with pytest.raises(UserError, match=message):
            check_plan(plan_of(tmp_path, job, **how), tmp_path)


def test_baselines_get_the_swept_jobs_experiment_metric_and_grid(tiny, tmp_path):
    text = "space: {evaluation.knn.k: {choice: [1, 3]}}\nsearch: {metric: val/macro_f1}"
    plan = plan_of(tmp_path, tiny_job(tiny, "experiment=ours"), text)
    baseline = plan.with_grid(tiny_job(tiny, "experiment=theirs", "objective.heads={}"))
    assert baseline.experiment == "ours"
    assert baseline.evaluation.metric == "val/macro_f1"
    assert baseline.evaluation.knn.grid.k == (1, 3)
    assert baseline.train.threads == 1
