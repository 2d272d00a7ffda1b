"""Whether a table can be run, and what it would take: told before anything is started."""

import pytest
from reproduced import Tables

from mlcl.errors import UserError
from mlcl.service.reproduce import plan_table


@pytest.fixture
def tables(tiny, tmp_path, monkeypatch):
    return Tables(tmp_path / "home", monkeypatch, tiny)


MORE = {"columns": {"All": {}, "Again": {}, "More": {"set": {"train.lr": 0.02}}}}
MULTI = {
    "objective.heads": {},
    "objective.classifier": {"loss": "bce", "labels": "tags"},
    "evaluation.metric": "val/micro_f1",
}


@pytest.mark.parametrize(
    ("metric", "settings", "text"),
    [
        ("test/acuracy", {}, "did you mean test/accuracy"),
        ("accuracy", {}, "found: accuracy"),
        ("train/accuracy", {}, "found: train/accuracy"),
        ("test/accuracy_nonsense", {}, "found: test/accuracy_nonsense"),
        ("knn/test/accuracy", {"evaluation.knn": None}, "no run of cell cold/all"),
        ("knn_best/test/accuracy", {"evaluation.knn.grid": None}, "no run of cell"),
        ("probe/test/accuracy", {}, "no run of cell"),
        ("transfer/test/accuracy", {}, "no run of cell"),
        ("knn/test/neighbour_overlap", {}, "no run of cell"),
        ("test/neighbour_overlap", MULTI, "no run of cell"),
        ("test/precision_at_8", MULTI, "no run of cell"),
    ],
)
def test_a_metric_that_no_run_will_have_is_told_before_the_start(tables, metric, settings, text):
    rows = {"Cold": {"set": settings}}
    with pytest.raises(UserError) as caught:
        tables.run(tables.plan({"metrics": {"x": metric}, "rows": rows}))
    assert (caught.value.key, caught.value.file) == ("metrics", str(tables.home / "table.yaml"))
    assert text in caught.value.line()
    assert not list(tables.home.glob("*/mlcl-*"))


@pytest.mark.parametrize(
    ("metric", "settings"),
    [
        ("test/accuracy_topic", {}),
        ("knn/val/accuracy_topic", {}),
        ("probe/test/macro_f1", {"evaluation.probe": {}}),
        ("knn_best/test/neighbour_overlap", MULTI),
        ("test/accuracy_word", {"objective.heads": {}, "objective.classifier.labels": "ratings"}),
        ("transfer/test/map", {"evaluation.transfer_to": {"labels": "tags", "metric": "micro_f1"}}),
    ],
)
def test_metrics_that_runs_do_have_are_taken(tables, tiny, metric, settings):
    if "evaluation.transfer_to" in settings:
        settings = {"evaluation.transfer_to": {**settings["evaluation.transfer_to"], "path": str(tiny)}}
    plan = tables.plan({"metrics": {"x": metric}, "rows": {"Cold": {"set": settings}}})
    assert plan_table(plan, tables.home)["trainings"]["missing"] == 2


@pytest.mark.parametrize(("key", "value"), [("train.workers", 2), ("train.device", "auto")])
def test_one_packing_holds_for_all_cells(tables, key, value):
    rows = {"a": {}, "b": {"set": {key: value}}}
    with pytest.raises(UserError, match="the trainings of a table share this key") as caught:
        tables.run(tables.plan({"rows": rows}))
    assert (caught.value.key, caught.value.file) == (key, str(tables.home / "table.yaml"))


def test_a_job_that_does_not_fit_its_data_names_the_cell(tables):
    rows = {"a": {}, "B b": {"set": {"objective.classifier.labels": "nonsense"}}}
    with pytest.raises(UserError, match=r"\(cell b-b/all\)") as caught:
        tables.run(tables.plan({"rows": rows}))
    assert caught.value.key == "objective.classifier.labels"


def test_a_source_without_its_files_says_how_to_give_them(tables):
    with pytest.raises(UserError) as caught:
        plan_table(tables.plan({"set": {"data": {"source": "aapd"}}}), tables.home)
    assert (caught.value.key, caught.value.allowed) == ("data.options.path", "--data aapd=PLACE")


def test_a_dry_run_counts_and_starts_nothing(tables):
    plan = tables.plan({**MORE, "paper": {"Cold": {"All": 9}}})
    told = plan_table(plan, tables.home)
    assert told["trainings"] | {"share": None} == {
        "all": 8, "done": 0, "missing": 8, "epochs": 32, "rows_to_encode": 8 * 4 * 48 * 2,
        "share": None, "time_one_at_a_time": "not known before the first of each kind",
    }  # fmt: skip
    assert told["cells"]["cold/all"] == {"seeds": 2, "printed": {"Acc": 9}}
    assert not list(tables.home.glob("*/mlcl-*"))
    tables.run(tables.plan())
    assert plan_table(plan, tables.home)["trainings"]["missing"] == 4
    tables.run(plan)
    told = plan_table(plan, tables.home)["trainings"]
    assert (told["done"], told["missing"], told["rows_to_encode"]) == (8, 0, 0)
    assert told["time_one_at_a_time"] == "0.0 s"


def test_a_last_batch_that_is_left_out_is_not_counted(tables):
    smaller = {"train.batch_size": 32, "train.drop_last": True}
    plan = tables.plan({"rows": {"Cold": {"set": smaller}}, "seeds": 1})
    assert plan_table(plan, tables.home)["trainings"]["rows_to_encode"] == 4 * 32 * 2


def test_coarser_levels_are_not_told_of_other_neighbours(tables):
    rows = {"k 7": {"set": {"evaluation.knn.k": 7}}}
    plan = tables.plan({"metrics": {"Topic": "knn/test/accuracy_topic"}, "rows": rows})
    with pytest.raises(UserError, match="no run of cell k-7/all has this metric"):
        tables.run(plan)
