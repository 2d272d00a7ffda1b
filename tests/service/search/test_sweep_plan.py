"""Tests of the plan of a sweep: its scores and counts, and refusals before anything starts."""

import pytest
from builders import text_dataset, tiny_job

from mlcl.config import load_space
from mlcl.errors import UserError
from mlcl.service.search.arms import control_job
from mlcl.service.search.plan_checks import check_plan, plan_sweep
from mlcl.service.search.sweep import _max_stage_trainings
from mlcl.service.search.sweep_plan import SweepPlan, with_scores

HEADLESS = ("objective.heads.detail.weight=0", "objective.heads.topic.weight=0")


def plan_of(tmp_path, job, text="space: {train.lr: {log_float: [0.001, 0.1]}}", **how):
    (tmp_path / "space.yaml").write_text(text)
    settings = {"name": "sweep", "trials": 2, "seeds": 1, "baselines": []} | how
    return SweepPlan(job, load_space(tmp_path / "space.yaml", job), text, **settings)


def test_what_scores_a_trial(tiny, tmp_path):
    """Tests that the best neighbours score a trial, or the job's metric if races choose the neighbours."""
    free_text = "space: {evaluation.knn.k: {choice: [1, 3]}}"
    goals_text = f"{free_text}\nsearch: {{metric: [val/accuracy, val/macro_f1], prune_by: val/accuracy}}"
    raceless_text = f"{free_text}\nsearch: {{race_seeds: 0}}"
    job, knn_job = tiny_job(tiny), tiny_job(tiny, "evaluation.metric=knn/val/accuracy")

    def score(job, *text, **options):
        return with_scores(plan_of(tmp_path, job, *text, **options), tmp_path).score

    assert score(job) == score(job, seeds=0) == score(job, free_text) == "val/accuracy"
    assert score(knn_job, free_text) == "knn/val/accuracy"
    assert score(job, free_text, seeds=0) == score(knn_job, free_text, seeds=0) == "knn_best/val/accuracy"
    assert score(job, goals_text) == score(job, raceless_text) == "knn_best/val/accuracy"


def test_what_compares_settings_on_fresh_seeds(tiny, tmp_path):
    """Tests that fresh seeds are compared by raced neighbours, else the ensemble, else a trial's score."""
    free_text = "space: {evaluation.knn.k: {choice: [1, 3]}}"
    plain_job, ensemble_job = tiny_job(tiny), tiny_job(tiny, "evaluation.ensemble=tfidf_svm")

    def score(job, *text, **options):
        return with_scores(plan_of(tmp_path, job, *text, **options), tmp_path).fresh_score

    assert score(plain_job) == "val/accuracy"
    assert score(ensemble_job) == "ensemble/val/accuracy"
    assert score(plain_job, free_text) == score(ensemble_job, free_text) == "knn/val/accuracy"
    assert score(ensemble_job, free_text, seeds=0) == "knn_best/val/accuracy"


def test_what_is_refused(tiny, tmp_path):
    job = tiny_job(tiny)
    other_job = tiny_job(text_dataset(tmp_path / "other", seed=1))
    topic_job = tiny_job(tiny, "objective.classifier.labels=topic")
    refused_options = {
        "did you mean detail": {"text": "space: {objective.heads.detail.labels: {choice: [detail, detial]}}"},
        "takes the other direction": {
            "text": "space: {evaluation.knn.k: {choice: [1, 3]}}\nsearch: {mode: min}"
        },
        "a space names a precision": {"text": "space: {train.precision: {choice: [bf16, auto]}}"},
        r"evaluation\.ensemble: a search scores the classifier alone": {
            "text": "space: {evaluation.ensemble: {choice: [tfidf_svm, text_svm]}}",
            "job": tiny_job(tiny, "evaluation.ensemble=tfidf_svm"),
        },
        "the space gives weight to heads of a job without": {
            "text": "space: {objective.heads.*.weight: {simplex: {total: [0.1, 0.6]}}}",
            "job": tiny_job(tiny, *HEADLESS),
        },
        "an ensemble is chosen after the search": {
            "text": "space: {evaluation.knn.k: {choice: [1, 3]}}\nsearch: {metric: knn/val/accuracy}",
            "job": tiny_job(tiny, "evaluation.ensemble=tfidf_svm"),
        },
        "a baseline needs the swept job's": {"baselines": [("b", other_job)]},
        r"objective\.classifier\.labels": {"baselines": [("b", topic_job)]},
    }
    for message, options in refused_options.items():
        with pytest.raises(UserError, match=message):
            check_plan(plan_of(tmp_path, **{"job": job, **options}), tmp_path)


def test_a_space_with_more_frozen_layers_than_there_are(tiny, tmp_path, models):
    keys = f"{{name: transformer, model: {models['bert']}, max_length: 8}}"
    job, text = tiny_job(tiny, f"encoder={keys}", *HEADLESS), "space: {encoder.freeze: {int: [0, 3]}}"
    with pytest.raises(UserError, match=r"encoder\.freeze: more layers than there are; found: 3; allowed: 2"):
        check_plan(plan_of(tmp_path, job, text), tmp_path)


@pytest.mark.parametrize(("race_seeds", "most"), [(4, 4 * 3), (2, 7), (0, 3 * 3)])
def test_the_most_trainings_at_once_are_those_of_search_race_or_confirmation(
    tiny, tmp_path, race_seeds, most
):
    text = f"space: {{train.lr: {{log_float: [0.001, 0.1]}}}}\nsearch: {{race_seeds: {race_seeds}}}"
    assert _max_stage_trainings(plan_of(tmp_path, tiny_job(tiny), text, trials=7, seeds=3, confirm=2)) == most


def test_a_plan_counts_a_control_on_the_validation_rows_of_every_search(tiny, tmp_path):
    job, text = tiny_job(tiny), "space: {objective.heads.*.temperature: {log_float: [0.05, 1.0]}}"
    options = {"seeds": 3, "searches": 2, "confirm": 1, "control": control_job(job)}
    plan = plan_of(tmp_path, job, f"{text}\nsearch: {{race_seeds: 0}}", **options)
    fresh_count = 2 * 2  # two searches with two seeds each
    assert plan_sweep(plan, tmp_path)["sweep"]["most_confirmation_runs"] == fresh_count + 2 * fresh_count


def test_a_plan_counts_the_models_of_every_setting_that_is_confirmed_without_a_race(tiny, tmp_path):
    job = tiny_job(tiny, "tracking.keep=confirmed")
    text = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {race_seeds: 0}"
    disk = plan_sweep(plan_of(tmp_path, job, text, trials=6, seeds=2, confirm=2), tmp_path)["sweep"]["disk"]
    race_count, confirmation_count = 2, 2 * (1 + 2)
    assert disk["most_trainings_kept"] == race_count + confirmation_count


def test_baselines_get_the_swept_jobs_experiment_metric_and_grid(tiny, tmp_path):
    text = "space: {evaluation.knn.k: {choice: [1, 3]}}\nsearch: {metric: val/macro_f1}"
    plan = plan_of(tmp_path, tiny_job(tiny, "experiment=ours"), text)
    baseline = plan.with_grid(tiny_job(tiny, "experiment=theirs", "objective.heads={}"))
    assert baseline.experiment == "ours"
    assert baseline.evaluation.metric == "val/macro_f1"
    assert baseline.evaluation.knn.grid.k == (1, 3)
    assert baseline.train.threads == 1


def test_the_epochs_of_each_arm_are_its_own(tiny, tmp_path):
    job, long_baseline = tiny_job(tiny), ("long", tiny_job(tiny, "train.epochs=40"))
    summary = plan_sweep(plan_of(tmp_path, job, searches=1, baselines=[long_baseline]), tmp_path)["sweep"]
    # 2 trials, 2 race settings with 2 seeds each, and 1 fresh seed make 7 trainings.
    assert (summary["most_epochs_each"], summary["most_epochs"]) == (40, 7 * (job.train.epochs + 40))
    epochs_text = "space: {train.lr: {log_float: [0.001, 0.1]}, train.epochs: {int: [2, 9]}}"
    summary = plan_sweep(
        plan_of(tmp_path, job, epochs_text, searches=1, baselines=[long_baseline]), tmp_path
    )["sweep"]
    assert summary["most_epochs"] == 7 * (9 + 40)
    fitted_baseline = ("fitted", tiny_job(tiny, "baseline=tfidf_svm"))
    assert (
        plan_sweep(plan_of(tmp_path, job, baselines=[fitted_baseline]), tmp_path)["sweep"]["most_epochs"]
        == (plan_sweep(plan_of(tmp_path, job), tmp_path)["sweep"]["most_epochs"])
    )
