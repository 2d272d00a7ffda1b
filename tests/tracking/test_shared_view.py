"""Tests of the view of a sweep's trials on MLflow's pages; tests/browser opens such a view."""

import json

from mlcl.tracking.shared_view import MOST_AXES, cells_view, trials_view, view_text

HEADS = ["objective.heads.topic.temperature", "objective.heads.topic.weight", "encoder.dropout"]
METRIC = "knn/val/macro_f1"
LONGEST_TAG = 5000
"""The most characters that MLflow accepts in a tag of an experiment."""


def test_columns_have_short_names_and_charts_their_logarithms():
    view = trials_view("sweep-1", [*HEADS, "train.lr", "evaluation.knn.k"], METRIC, "max")
    columns = ("tau.topic", "alpha.topic", "encoder.dropout", "train.lr", "k")
    assert view["selectedColumns"][2:] == [f"params.`{name}`" for name in columns]
    parallel, contour, curves, *scatters = view["compareRunCharts"]
    axes = ["log10.tau.topic", "alpha.topic", "encoder.dropout", "log10.train.lr", "k"]
    assert parallel["selectedParams"] == axes
    assert (contour["xaxis"]["key"], contour["yaxis"]["key"]) == ("log10.tau.topic", "alpha.topic")
    assert curves["selectedMetricKeys"] == [METRIC]
    assert [chart["xaxis"]["key"] for chart in scatters] == axes


def test_temperatures_and_weights_come_first_and_many_long_keys_fit_into_a_tag():
    long_keys = [
        f"objective.heads.a_head_with_a_long_name_{number}.projection.hidden" for number in range(40)
    ]
    other_keys = [f"encoder.{name}" for name in "abcdefgh"]
    columns = trials_view("it", [*other_keys, *HEADS], METRIC, "max")["selectedColumns"][2:]
    assert columns[:3] == ["params.`tau.topic`", "params.`alpha.topic`", "params.`encoder.a`"]
    view = trials_view("mlcl-20300101-000000-000000", long_keys, METRIC, "max")
    assert len(view["selectedColumns"]) == 2 + MOST_AXES
    text = view_text(view, "0" * 32)
    assert len(text) <= LONGEST_TAG
    assert json.loads(text)["runsExpanded"] == {"0" * 32: True}


def test_the_best_trial_comes_first_and_one_searched_key_has_no_contour():
    max_view, min_view = (trials_view("it", ["train.lr"], METRIC, mode) for mode in ("max", "min"))
    assert (max_view["orderByAsc"], min_view["orderByAsc"]) == (False, True)
    assert [chart["type"] for chart in max_view["compareRunCharts"]] == ["PARALLEL", "LINE", "SCATTER"]


def test_a_table_shows_the_runs_nested_in_its_own():
    view = cells_view({"test/loss": False, "knn/test/accuracy": True}, HEADS)
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`test/loss`", True)
    columns = ("tags.`mlcl.cell`", "metrics.`knn/test/accuracy`", "params.`tau.topic`")
    assert tuple(view["selectedColumns"][1:4]) == columns
    assert [chart["metricKey"] for chart in view["compareRunCharts"]] == ["test/loss", "knn/test/accuracy"]
    search_filter = json.loads(view_text(view, "0" * 32))["searchFilter"]
    assert search_filter.endswith(f"tags.mlflow.parentRunId = '{'0' * 32}'")
