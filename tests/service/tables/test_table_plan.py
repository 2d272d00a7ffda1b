"""Tests of the plan of a table: refusals, overrides, scales, and counts of trainings, rows and time."""

import json
import shlex
import shutil

import pytest

from mlcl.config import job_hash, parse_override
from mlcl.data.sources import cifar
from mlcl.errors import UserError
from mlcl.service.tables import cost
from mlcl.service.tables.cost import plan_table

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
    with pytest.raises(UserError) as error:
        tables.run(tables.plan({"metrics": {"x": metric}, "rows": rows}))
    assert (error.value.key, error.value.file) == ("metrics", str(tables.home / "table.yaml"))
    assert text in error.value.line()
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


def source(name):
    return {"set": {"data": {"source": name}}}


def columns(*names):
    return {"columns": {name: source(name) for name in names}}


def row(settings):
    return {"rows": {"a": {}, "B b": {"set": settings}}}


SHARE, FILES = "the trainings of a table share this key", "needs files of {}: docs/data.md"
TRANSFER = {"evaluation.transfer_to": {"source": "rcv1", "labels": "topics"}}


@pytest.mark.parametrize(
    ("tree", "text", "key", "allowed"),
    [
        (row({"train.workers": 2}), SHARE, "train.workers", "one value"),
        (row({"train.device": "auto"}), SHARE, "train.device", "one value"),
        (row({"objective.classifier.labels": "x"}), "(cell b-b/all)", "objective.classifier.labels", ""),
        (columns("aapd"), FILES.format("aapd"), "--data", "--data aapd=PLACE"),
        (columns("aapd", "rcv1"), FILES.format("aapd, rcv1"), "--data",
         "--data aapd=PLACE --data rcv1=PLACE"),
        (columns("icd10cm", "rcv1"), FILES.format("rcv1"), "--data",
         "--data rcv1=PLACE, or --only with cells of other data"),
        ({"rows": {"a": {"set": TRANSFER}}}, FILES.format("rcv1"), "--data", "--data rcv1=PLACE"),
        # Metrics of coarser levels cannot be computed from stored embeddings for other neighbours.
        ({**row({"evaluation.knn.k": 7}), "metrics": {"Topic": "knn/test/accuracy_topic"}},
         "no run of cell b-b/all has this metric", "metrics", ""),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_run_is_refused_before_the_start(tables, tree, text, key, allowed):
    with pytest.raises(UserError) as error:
        plan_table(tables.plan(tree), tables.home)
    assert text in error.value.line()
    assert error.value.key == key
    assert allowed in str(error.value.allowed)
    assert not list(tables.home.glob("data/*"))


def test_a_source_of_a_package_takes_no_files(tables, tmp_path):
    plan = tables.plan({"rows": {"Cold": source("icd10cm")}}, data={"icd10cm": str(tmp_path)})
    with pytest.raises(UserError, match="takes no files") as error:
        plan_table(plan, tables.home)
    assert (error.value.key, error.value.found) == ("--data", f"icd10cm={tmp_path}")


def test_a_download_that_fails_says_how_to_give_the_files(tables, monkeypatch):
    def fetch(*_):
        raise UserError("cannot be downloaded", found="no network")

    monkeypatch.setattr(cifar, "fetch", fetch)
    job = {"data": {"source": "cifar100"}, "evaluation.transfer_to": {"source": "cifar10", "labels": "class"}}
    with pytest.raises(UserError, match=r"cannot be downloaded \(cell cold/all\)") as error:
        plan_table(tables.plan({"rows": {"Cold": {"set": job}}}), tables.home)
    assert error.value.allowed == "--data cifar100=PLACE --data cifar10=PLACE"


def test_a_prepared_folder_of_another_source_does_not_stand_for_one(tables, tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "prepared")
    plan = tables.plan({"rows": {"Cold": source("aapd")}}, data={"aapd": str(folder)})
    named(folder, "rcv1")
    with pytest.raises(UserError, match="a prepared folder of another source") as error:
        plan_table(plan, tables.home)
    assert (error.value.key, error.value.found, error.value.allowed) == ("--data", "rcv1", "aapd")
    for name in ("aapd", "our own copy"):
        named(folder, name)
        plan = tables.plan({"rows": {"Cold": source("aapd")}}, data={"aapd": str(folder)})
        assert plan_table(plan, tables.home)["trainings"]["all"] == 2


def named(folder, name):
    """Changes the name of a prepared data set."""
    file = folder / "dataset.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": name}))


OUTSIDE = {"paper": {"Cold": {"All": 9}}}
"""A table with a printed value from which the cell's value differs by more than the tolerance."""


def test_overrides_reach_every_job_and_nothing_is_judged(tables):
    report = tables.run(tables.plan(OUTSIDE, overrides={"train.epochs": 2}))
    assert {epoch for _, epoch in tables.formula.trained} == {1, 2}
    assert (report.limits, report.outside) == ({}, [])
    assert report.command.endswith("table.yaml train.epochs=2")


@pytest.mark.parametrize(
    ("key", "value", "tolerance"),
    [
        ("data.path", "{tiny}", 5),
        ("train.batch_size", 4, None),
        ("data.options.splits", None, None),
        ("data.options.splits", "seeded", None),
        ("data.options.splits", 0.5, None),
    ],
)
def test_only_an_override_with_another_path_keeps_the_papers_setting(tables, tiny, key, value, tolerance):
    tree = {**OUTSIDE, "places": ["data.path", "data.options.splits"]}
    value = str(tiny) if value == "{tiny}" else value
    assert tables.plan(tree, overrides={key: value}).tolerance("Acc") == tolerance
    overrides = {key: value, "data.path": str(tiny)}
    assert tables.plan(tree, overrides=overrides).tolerance("Acc") == tolerance


def test_the_command_of_a_table_has_the_values_of_its_overrides(tables):
    texts = ["plain", "a b", "1", "null", "a #1", "a: b", "[a]", "@x", "2020-01-01", ""]
    values = [*texts, 1, 1e-5, None, True, ["1", 2], {"a": "null"}]
    overrides = {f"tracking.key{place}": value for place, value in enumerate(values)}
    words = shlex.split(tables.plan(overrides=overrides).command)
    assert dict(map(parse_override, words[-len(values) :])) == overrides
    assert words[-len(values)] == "tracking.key0=plain"


def test_a_scale_has_a_name_a_folder_and_words_of_its_own(tables):
    scales = {"small": {"about": "Two epochs.", "seeds": 1, "set": {"train.epochs": 2}, "tolerance": 1}}
    tree = {"scales": scales, "about": "Batch size is ours."}
    report = tables.run(tables.plan(tree, scale="small"))
    assert (report.name, report.about) == ("table@small", "Two epochs. Batch size is ours.")
    assert (report.cells[0].figures[0].tolerance, len(tables.trained())) == (1, 2)
    assert report.command.endswith("table.yaml --scale small")
    assert tables.run(tables.plan(tree)).id != report.id


def test_a_dry_run_counts_and_starts_nothing(tables):
    plan = tables.plan({**MORE, **OUTSIDE})
    summary = plan_table(plan, tables.home)
    assert summary["trainings"] | {"share": None, "kinds": None} == {
        "all": 8, "done": 0, "missing": 8, "epochs": 32, "rows_to_encode": 8 * 4 * 48 * 2, "kinds": None,
        "share": None, "time_one_at_a_time": cost.UNKNOWN, "cpu_time": cost.UNKNOWN,
        "frozen_inputs": "nothing to encode",
    }  # fmt: skip
    assert summary["trainings"]["share"]["gpus"] == "one where there are any"
    assert summary["cells"]["cold/all"] == {"seeds": 2, "printed": {"Acc": 9}}
    assert not list(tables.home.glob("*/mlcl-*"))
    tables.run(tables.plan())
    assert plan_table(plan, tables.home)["trainings"]["missing"] == 4
    tables.run(plan)
    trainings = plan_table(plan, tables.home)["trainings"]
    assert (trainings["done"], trainings["missing"], trainings["rows_to_encode"]) == (8, 0, 0)
    assert (trainings["time_one_at_a_time"], trainings["cpu_time"]) == ("0.0 s", "0.0 cpu-s")


def test_a_dry_run_tells_encoders_apart(tables, monkeypatch):
    monkeypatch.setattr(cost, "_run_seconds", lambda *_: 9.6)
    encoder = {"name": "cnn_text", "width": 8, "max_length": 1024}
    tables.run(tables.plan({"rows": {"Cold": {}}, "seeds": 1}))
    overrides = {"train.batch_size": 32, "train.drop_last": True}  # the last batch, of 16 rows, is dropped
    rows = {"Cold": {}, "Long": {"set": {"encoder": encoder, "train.epochs": 3, **overrides}}}
    trainings = plan_table(tables.plan({"rows": rows}, cpus=2), tables.home)["trainings"]
    long_kind, short_kind = trainings["kinds"]
    assert (short_kind["trainings"], short_kind["epochs"], short_kind["rows_to_encode"]) == (1, 4, 4 * 48 * 2)
    assert (long_kind["trainings"], long_kind["epochs"], long_kind["rows_to_encode"]) == (
        2,
        6,
        2 * 3 * 32 * 2,
    )
    assert long_kind["encoder"] == "cnn_text, 1,024 tokens"
    assert short_kind["time_one_at_a_time"] == "9.6 s"
    assert long_kind["time_one_at_a_time"] == cost.UNKNOWN
    assert trainings["time_one_at_a_time"] == "9.6 s, without 2 trainings of unknown time"
    assert trainings["cpu_time"] == "19.2 cpu-s, without 2 trainings of unknown time"


def test_a_dry_run_tells_fitted_baselines_from_trainings(tables, monkeypatch):
    seconds_by_hash = {}  # the seconds of a training and of a fit
    monkeypatch.setattr(cost, "_run_seconds", lambda _, folder: seconds_by_hash[folder.record.job_hash])
    rows = {"Cold": {}, "Fit": {"set": {"baseline": "tfidf_svm"}}}
    first_plan, second_plan = (
        tables.plan({"rows": rows, "seeds": 1}),
        tables.plan({"rows": rows, "seeds": 3}, name="both"),
    )
    trained_cell, fitted_cell = first_plan.cells
    seconds_by_hash |= {job_hash(trained_cell.jobs[0]): 9.6, job_hash(fitted_cell.jobs[0]): 0.4}
    tables.run(first_plan)
    trainings = plan_table(second_plan, tables.home)["trainings"]
    kinds = {kind["encoder"].partition(",")[0]: kind for kind in trainings["kinds"]}
    training, fit = kinds["cnn_text"], kinds["tfidf_svm"]
    assert (training["trainings"], training["epochs"], training["rows_to_encode"]) == (2, 8, 2 * 4 * 48 * 2)
    assert (fit["trainings"], fit["epochs"], fit["rows_to_encode"]) == (2, 0, 2 * 48)
    assert (training["time_one_at_a_time"], fit["time_one_at_a_time"]) == ("19.2 s", "0.8 s")
    assert (trainings["epochs"], trainings["time_one_at_a_time"]) == (8, "20.0 s")
