"""Tests that `mlcl.run`, `mlcl.sweep`, `mlcl.compare` and `mlcl.load` do in Python what the commands do."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from api.modules import Bag
from builders import job_tree, text_dataset
from commands import mlcl as command
from PIL import Image
from reproduced import Tables
from sweeps import World
from torch import nn

import mlcl
import mlcl.results
from mlcl.api.answer import Answer
from mlcl.api.common import home_of, job_of
from mlcl.api.sweeping import shared_overrides, sweep_plan
from mlcl.config import job_hash, load_job
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, FigureResult
from mlcl.results.table_result import TableResult
from mlcl.service.engine.ledger import Ledger
from mlcl.tracking import State

STAR = "objective.heads.*.temperature"
SPACE = {
    "space": {STAR: {"log_float": [0.05, 1.0]}},
    "search": {"scheduler": "none"},
}


class Ones(nn.Module):
    def forward(self, x):
        return x.float()


TEXTS = [f"{word} {i} of {word}s" for i in range(40) for word in ("ball", "vote", "song")]
TOPICS = ["sport", "politics", "music"] * 40


@pytest.fixture
def tree(tmp_path):
    return job_tree(text_dataset(tmp_path / "data"))


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Returns a home with a store in which trainings are formulas."""
    home = tmp_path / "home"
    return Tables(home, monkeypatch, text_dataset(tmp_path / "data"), f"sqlite:///{home}/mlflow.db")


def test_a_run_is_that_of_the_command(tree, tmp_path):
    lines = []
    report = mlcl.run(tree, {"train.epochs": 2}, home=tmp_path / "home", progress=lines.append)
    assert (report.state, report.resumed) == ("COMPLETE", False)
    assert "test/accuracy" in report.metrics
    assert any(line.startswith("epoch 2/2") for line in lines)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(tree))
    words = ("run", tmp_path / "job.yaml", "train.epochs=2", "--home", tmp_path / "home", "--json")
    answer = command(*words)
    assert answer.json["job_hash"] == job_hash(load_job(tree, {"train.epochs": 2}))
    scores = {name: value for name, value in report.metrics.items() if not name.startswith("time/")}
    assert scores.items() <= answer.json["metrics"].items()


def test_baselines_are_a_frame_with_the_best_first(tmp_path):
    data, names = {"text": TEXTS, "topic": TOPICS}, ["majority", "tfidf_svm"]
    options = {"text": "text", "labels": "topic", "home": tmp_path / "home", "progress": None}
    frame = mlcl.baseline(data, names=names, **options)
    assert list(frame.index) == ["tfidf_svm", "majority"]
    assert (frame["state"] == "COMPLETE").all()
    assert frame.loc["tfidf_svm", "test/accuracy"] == 1.0
    assert frame.attrs == {"metric": "val/accuracy", "best": "tfidf_svm", "left_out": {}}
    assert list(mlcl.baseline(data, names="majority", **options).index) == ["majority"]
    with pytest.raises(UserError, match=r"did you mean tfidf_svm"):
        mlcl.baseline(data, names=["tfidf_svn"], **options)
    paths = {"text": TEXTS, "Topic path": [f"{topic} > {topic} {i % 2}" for i, topic in enumerate(TOPICS)]}
    options |= {"labels": "Topic path", "kind": "path"}
    assert "test/accuracy_Topic_path_level1" in mlcl.baseline(paths, names="majority", **options)
    with pytest.raises(UserError, match="a list is no path"):
        mlcl.baseline({**paths, "Topic path": [[topic, "all"] for topic in TOPICS]}, **options)


def test_a_sweep_is_that_of_the_command(tree, tmp_path, monkeypatch):
    home = tmp_path / "home"
    world = World(home, monkeypatch, f"sqlite:///{home}/mlflow.db")
    files = tmp_path / "job.yaml", tmp_path / "space.yaml"
    for file, content in zip(files, (tree, SPACE), strict=True):
        file.write_text(yaml.safe_dump(content, sort_keys=False))
    answer = mlcl.sweep(*files, trials=3, seeds=3, fitted=False, home=home, progress=None)
    assert (answer.name, answer.state) == ("job-space", "COMPLETE")
    n_trained = len(world.formula.trained)
    words = ("sweep", *files, "--trials", 3, "--seeds", 3, "--no-baselines", "--home", home, "--json")
    command_answer = command(*words)
    assert command_answer.json["id"] == answer.result.id
    assert len(world.formula.trained) == n_trained
    assert [verdict["sentence"] for verdict in command_answer.json["verdicts"]] == answer.verdict.splitlines()
    assert set(answer.frame["kind"]) == {"search", "confirmation"}
    loaded_answer = mlcl.load("job-space", home=home)
    assert loaded_answer.verdict == answer.verdict
    assert "job-space: COMPLETE" in repr(loaded_answer)


def test_a_sweep_of_mappings_is_called_after_the_experiment(tree, tmp_path, monkeypatch):
    World(tmp_path / "home", monkeypatch)
    key = next(f"objective.heads.{name}.temperature" for name in tree["objective"]["heads"])
    options = {"trials": 2, "baselines": None, "home": tmp_path / "home", "progress": None}
    space = {**SPACE, "space": {STAR: {"log_float": np.array([0.05, 1.0])}}}
    settings = ({key: value} for value in (np.float32(0.25),))
    answer = mlcl.sweep(tree, space, {"train.epochs": np.int64(2)}, try_first=settings, **options)
    assert answer.name == "tiny"
    assert [trial.origin for trial in answer.result.trials] == ["as written", "asked for"]
    assert answer.result.trials[1].settings[key] == 0.25
    assert yaml.safe_load(answer.result.space)["space"][STAR] == {"log_float": [0.05, 1.0]}
    with pytest.raises(UserError, match=rf"key --try {key}: needs a number, not true or false"):
        mlcl.sweep(tree, SPACE, try_first=[{key: True}], **options)
    with pytest.raises(UserError, match=r"space.*names no key of the job; did you mean train\.epochs"):
        mlcl.sweep(tree, {"space": {"train.epoch": {"choice": [1, 2]}}}, home=tmp_path / "home")


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_overrides_and_the_callers_module_complete_the_mapping_of_a_sweep(tree, tmp_path, monkeypatch):
    World(tmp_path / "home", monkeypatch)
    overrides = {"data": tree.pop("data"), "experiment": "other"}
    del tree["encoder"]
    options = {"trials": 1, "home": tmp_path / "home", "encoder": Bag, "progress": None}
    answer = mlcl.sweep(tree, SPACE, overrides, **options)
    assert (answer.name, answer.state) == ("other", "COMPLETE")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"trials": 0}, "key trials: not a whole number in the allowed range; found: 0; allowed: 1 or more"),
        ({"trials": 2.5}, "key trials: .*found: 2.5"), ({"seeds": -1}, "key seeds: .*allowed: 0 or more"),
        ({"searches": 0}, "key searches: "), ({"confirm": True}, "key confirm: "),
        ({"parallel": 0}, "key parallel: "), ({"cpus": "1"}, "key cpus: not a number; found: '1'"),
        ({"gpus": True}, "key gpus: not a number; found: True"),
        ({"trial": 3}, r"key trial: no such option; did you mean trials\?"),
        ({"baselines": False}, "key baselines: no list; found: False; .*fitted=False"),
        ({"baselines": "job.yaml"}, "key baselines: no list; found: job.yaml"),
        ({"baselines": Path("job.yaml")}, "key baselines: no list; found: job.yaml"),
        ({"name": 3}, "not a name; found: 3"),
        ({"budget": 30}, "key --budget: not an amount of time above 0; found: 30"),
        ({"try_first": {"train.lr": 0.1}}, "key try_first: no settings; found: {'train.lr': 0.1}; .*a list"),
        ({"try_first": ["train.lr=0.1"]}, "key try_first: no settings"),
    ],
)  # fmt: skip
def test_wrong_options_of_a_sweep_are_refused_before_anything_is_written(tree, tmp_path, options, problem):
    with pytest.raises(UserError, match=problem):
        mlcl.sweep(tree, SPACE, home=tmp_path / "home", **options)
    assert not (tmp_path / "home").exists()


def compared(tables, **how):
    defaults = {"losses": ["supcon", "simclr"], "trials": 3, "seeds": 3, "baselines": False, "name": "mine"}
    return mlcl.compare(
        {"text": TEXTS, "topic": TOPICS}, text="text", labels="topic", home=tables.home,
        **{"progress": None, **defaults, **how},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "problem"),
    [({"name": "no/good"}, "key name: not a name; found: no/good"),
     ({"trials": True}, "key trials: no whole number; found: True"),
     ({"seeds": 3.0}, "key seeds: no whole number; found: 3.0"),
     ({"progress": "x"}, "key progress: no function; found: 'x'")],
)  # fmt: skip
def test_a_comparison_is_refused_before_it_starts(tables, how, problem):
    with pytest.raises(UserError, match=problem):
        compared(tables, **how)
    assert not tables.formula.trained


def metrics_of(formula):
    """Adds figures of test and of the neighbours to those of a formula."""
    figures = formula.figures

    def more(job):
        metrics = figures(job)
        return metrics | {
            f"{prefix}{split}/{name}": metrics["val/accuracy"]
            for prefix in ("", "knn/", "knn_best/")
            for split in ("val", "test")
            for name in ("accuracy", "macro_f1")
        }

    return more


def test_a_comparison_is_a_table_against_the_classifier_alone(tables, monkeypatch):
    monkeypatch.setattr(tables.formula, "figures", metrics_of(tables.formula))
    answer = compared(tables, trials=np.int64(3), seeds=np.int32(3))
    assert (answer.name, answer.state) == ("mine", "COMPLETE")
    assert {cell.row for cell in answer.result.cells} == {"cross_entropy", "supcon", "simclr"}
    assert {verdict.reference.label for verdict in answer.verdicts} == {"cross_entropy"}
    assert len(answer.verdicts) == len(answer.verdict.splitlines()) == 2
    html = answer._repr_html_()
    assert "<svg" in html
    assert all(
        f"<td>{verdict.treated.label} against cross_entropy</td>" in html for verdict in answer.verdicts
    )
    at_a_server = Answer(answer.result, tables.home, "http://me:secret@lab:5000")._repr_html_()
    assert at_a_server.endswith(
        'MLflow: open <a href="http://me:***@lab:5000">http://me:***@lab:5000</a></p>'
    )
    n_trained = len(tables.formula.trained)
    second_answer = compared(tables)
    assert second_answer.result.id == answer.result.id
    assert len(tables.formula.trained) == n_trained
    file = tables.home / "comparisons/mine.yaml"
    assert command("reproduce", file, "--home", tables.home, "--dry-run").status == 0
    entries = Ledger(answer.result.folder).entries.values()
    assert {entry.job["objective"]["classifier"]["loss"] for entry in entries} == {"cross_entropy"}
    assert not any(entry.job["evaluation"]["ensemble"] for entry in entries)
    epochs = {entry.job["train"]["epochs"] for entry in entries if entry.scope.startswith("supcon")}
    assert epochs <= {e.job["train"]["epochs"] for e in entries if e.scope.startswith("cross-entropy")}


def test_a_table_without_the_row_of_its_control_has_no_verdicts(tmp_path):
    figure = FigureResult("accuracy", "test/accuracy", None, (50.0, 60.0), None)
    cells = tuple(CellResult(row, "C", row, (figure,), ("a", "b"), data="d") for row in ("supcon", "simclr"))
    fields = ("id", "mine", "", "", "", "", State.COMPLETE, "", tmp_path)
    table = TableResult(*fields, cells, "percent", {"accuracy": True}, control="cross_entropy")
    answer = Answer(table, tmp_path)
    assert (answer.verdicts, answer.verdict) == ([], "")
    assert len(Answer(replace(table, control="simclr"), tmp_path).verdicts) == 1


def test_the_verdicts_of_a_table_name_the_column_that_they_are_about(tmp_path):
    def cell(row, column, metric):
        figure = FigureResult("f1", metric, None, (50.0, 60.0), None)
        return CellResult(row, column, f"{row}/{column}", (figure,), ("a", "b"), data=column)

    columns = {"A": "test/macro_f1", "B": "test/micro_f1"}
    cells = tuple(cell(row, *item) for item in columns.items() for row in ("ce", "supcon"))
    fields = ("id", "mine", "", "", "", "", State.COMPLETE, "", tmp_path)
    answer = Answer(TableResult(*fields, cells, "percent", {"f1": True}, control="ce"), tmp_path)
    assert [verdict.metric for verdict in answer.verdicts] == list(columns.values())
    assert [line[:3] for line in answer.verdict.splitlines()] == ["A: ", "B: "]


@pytest.mark.parametrize("own", ["heads", "job"])
def test_a_baseline_with_the_name_of_the_swept_jobs_arm_is_refused(tree, tmp_path, own):
    if own == "job":
        tree["objective"]["heads"] = {}
    plan = {"name": "it", "home": tmp_path / "home", "shared": {}, "seeds": 0, "trials": 1}
    space = {"space": {"train.lr": {"log_float": [0.001, 0.1]}}}
    for name in ("heads", "job"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(tree))
        if name != own:
            sweep = sweep_plan(load_job(tree), space, baselines=[file], **plan)
            assert [baseline_name for baseline_name, _ in sweep.baselines] == [name]
            continue
        with pytest.raises(UserError, match="is the name of the swept job's arm"):
            sweep_plan(load_job(tree), space, baselines=[file], **plan)


def test_a_whole_section_of_overrides_reaches_control_and_baselines():
    mapping = {"train": {"epochs": 2}, "encoder": {"width": 8}, "plugins": []}
    keys = {"train.lr": 0.1, "encoder.dropout": 0.2}
    assert shared_overrides({**mapping, **keys, "objective": {}, "experiment": "mine"}) == {**mapping, **keys}


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_comparison_with_a_module_of_the_callers(tables, monkeypatch):
    monkeypatch.setattr(tables.formula, "figures", metrics_of(tables.formula))
    answer = compared(tables, losses=["supcon"], encoder=Bag)
    assert answer.state == "COMPLETE"
    (file,) = tables.home.glob("encoders/Bag_*.py")
    jobs = [entry.job for entry in Ledger(answer.result.folder).entries.values()]
    assert {job["encoder"]["name"] for job in jobs} == {file.stem}
    assert {job["plugins"][0]["source"] for job in jobs} == {file.read_text()}
    n_trained = len(tables.formula.trained)
    assert compared(tables, losses=["supcon"], encoder=Bag).result.id == answer.result.id
    assert len(tables.formula.trained) == n_trained
    with pytest.raises(UserError, match="needs its tokenizer"):
        compared(tables, encoder=Bag(9))


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_comparison_of_vectors_with_a_module_of_the_callers(tables, monkeypatch):
    monkeypatch.setattr(tables.formula, "figures", metrics_of(tables.formula))
    options = {"losses": "supcon", "trials": 3, "seeds": 3, "baselines": False, "home": tables.home}
    vectors = [[float(i), float(TOPICS[i] == "sport")] for i in range(120)]
    answer = mlcl.compare(vectors, labels=TOPICS, encoder=nn.Linear(2, 4), progress=None, **options)
    assert {entry.job["encoder"]["name"][:6] for entry in Ledger(answer.result.folder).entries.values()} == {
        "Linear"
    }
    with pytest.raises(UserError, match=r"forward of Linear fails with column \(2, 2\)"):
        mlcl.compare(vectors, labels=TOPICS, encoder=nn.Linear(3, 4), **options)


@pytest.mark.usefixtures("forgotten_plugin_files")
@pytest.mark.parametrize("modality", ["texts", "images"])
def test_a_comparison_with_a_module_and_a_collate_function_of_the_callers(tables, monkeypatch, modality):
    monkeypatch.setattr(tables.formula, "figures", metrics_of(tables.formula))
    options = {"losses": "supcon", "trials": 3, "seeds": 3, "baselines": False, "home": tables.home}
    images = [Image.new("RGB", (9, 9), (i, 0, 0)) for i in range(120)]

    def sizes(contents):
        return {
            "x": torch.tensor(
                [[len(content), 1.0] if isinstance(content, str) else content.size for content in contents]
            )
        }

    answer = mlcl.compare(
        TEXTS if modality == "texts" else images, labels=TOPICS, encoder=Ones, collate=sizes, progress=None,
        **options,
    )  # fmt: skip
    sections = [entry.job["encoder"] for entry in Ledger(answer.result.folder).entries.values()]
    (file,) = tables.home.glob("encoders/Ones_*.py")
    assert {tuple(section.items()) for section in sections} == {(("name", file.stem),)}


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"losses": ["simdiss"]}, "no such loss; did you mean simdis"),
        ({"losses": ["himulcon"]}, "himulcon needs a hierarchy"),
        ({"losses": ["cross_entropy"]}, "nothing to compare with cross_entropy"),
        ({"trials": 2}, "each search needs one at least"),
        ({"trials": "3"}, "key trials: no whole number; found: '3'"),
        ({"seeds": 3.5}, "key seeds: no whole number; found: 3.5"),
        ({"losses": None}, "key losses: no name; found: None"),
        ({"losses": [3]}, "key losses: no name"),
        ({"overrides": ["train.epochs=2"]}, "key overrides: no overrides"),
        ({"label": "topic"}, "no such option; did you mean labels"),
        ({"text": "body"}, "body"),
        ({"data": {"text": TEXTS, "topic": ["same"] * 120}}, "only one class"),
        ({"data": {"text": [], "topic": []}}, "no rows"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(tables, how, problem):
    options = {"text": "text", "labels": "topic", "losses": ["supcon"], "home": tables.home, **how}
    with pytest.raises(UserError, match=problem):
        mlcl.compare(options.pop("data", {"text": TEXTS, "topic": TOPICS}), **options)
    assert tables.formula.trained == []
    assert not list(tables.home.glob("tables/*"))
    assert not list(tables.home.glob("comparisons/*"))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda home: mlcl.run(None, home=home), "no job; found: NoneType"),
        (lambda home: mlcl.sweep("icd10cm_ce", None, home=home), "no space; found: NoneType"),
        (lambda home: mlcl.run("icd10cm_ce", ["train.epochs=2"], home=home), "key overrides: no overrides"),
        (lambda home: mlcl.run("icd10cm_ce", {3: 4}, home=home), "key overrides: no overrides"),
        (lambda home: mlcl.load(None, home=home), "key load: no name; found: None"),
        (lambda home: mlcl.results.load(3, home=home), "key load: no name; found: 3"),
        (lambda home: mlcl.load_model(None), "key folder: no folder; found: None"),
        (lambda home: mlcl.prepare(home, home=3), "key home: no folder; found: 3"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(tmp_path, call, problem):
    with pytest.raises(UserError, match=problem):
        call(tmp_path)


def test_a_home_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "home").touch()
    with pytest.raises(UserError, match="key home: is a file"):
        mlcl.load("x", home=tmp_path / "home")


def test_the_home_may_begin_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLCL_HOME", "~/a")
    assert (home_of(None), home_of("~/b")) == (tmp_path / "a", tmp_path / "b")
    assert command("list", "--home", "~/c").status == 0
    assert not Path("~").exists()


def test_losses_have_the_heads_that_they_read(tmp_path):
    from mlcl.api.comparing import comparison_table, prepare_user_data

    columns = {"text": TEXTS, "area": ["fun", "life", "fun"] * 40, "topic": TOPICS}
    data = prepare_user_data(columns, {"text": "text", "labels": ("area", "topic")}, tmp_path)
    first_job = data.first_job(None, data.description())
    losses = ["supcon", "himulcon", "knn", "simclr"]
    table = comparison_table(first_job.job, first_job.space, losses, data, 6, 3, baselines=True)
    heads = {row: row_spec["set"].get("objective.heads") for row, row_spec in table["rows"].items()}
    assert heads["cross_entropy"] == {}
    assert {head: head_options["labels"] for head, head_options in heads["supcon"].items()} == {
        "area": "area",
        "topic": "topic",
    }
    assert heads["himulcon"]["path"]["labels"] == "path"
    assert "labels" not in heads["simclr"]["views"]
    knn_head, supcon_head = heads["knn"]["topic"], heads["supcon"]["topic"]
    assert knn_head["temperature"] == 20 * supcon_head["temperature"]
    assert knn_head["projection"] == {"kind": "identity"}
    assert {"tfidf_svm", "majority"} <= table["rows"].keys()


def test_a_loss_in_place_of_bce_has_no_weights_of_positives(tmp_path):
    from mlcl.api.comparing import comparison_table, prepare_user_data

    topics = [[topic, "new"] if row % 3 else [topic] for row, topic in enumerate(TOPICS)]
    data = prepare_user_data({"text": TEXTS, "topic": topics}, {"text": "text", "labels": "topic"}, tmp_path)
    first_job = data.first_job(None, data.description())
    table = comparison_table(first_job.job, first_job.space, ["asl"], data, 6, 3, baselines=False)
    row, weight = table["rows"]["asl"], "objective.classifier.pos_weight"
    assert weight in first_job.space["space"]
    assert weight not in row["tune"]["space"]["space"]
    assert weight not in row["tune"]["hold"] + row["tune"]["start"]
    job = load_job({**first_job.job, "experiment": "mine"}, row["set"])
    assert (job.objective.classifier.loss, job.objective.classifier.pos_weight) == ("asl", "none")


def test_keys_that_are_overridden_are_not_searched(tables):
    compared(tables, overrides={"train.epochs": 2})
    assert max(epoch for _, epoch in tables.formula.trained) == 2


def test_the_label_space_of_a_prepared_data_set_may_stand_in_a_list(tmp_path):
    path, options = text_dataset(tmp_path / "data"), {"home": tmp_path / "home", "progress": None}
    assert "test/micro_f1" in mlcl.baseline(path, names=["majority"], labels=["tags"], **options)
    with pytest.raises(UserError, match=r"key labels: a prepared data set has label spaces, of which one"):
        mlcl.baseline(path, names=["majority"], labels=["tags", "topic"], **options)


def test_a_loaded_job_and_its_file_become_one_job_under_overrides(tmp_path):
    heads = {"objective.heads.x": {"loss": "supcon", "labels": "section", "temperature": 0.1, "weight": 1.0}}
    for name, overrides in (("icd10cm_ce", heads), ("icd10cm_mlcl", {"objective.heads": {}})):
        file = Path("jobs") / f"{name}.yaml"
        job, file_job = job_of(load_job(file), overrides), load_job(file, overrides)
        assert (job.views, job_hash(job)) == (file_job.views, job_hash(file_job))
    loaded_job = load_job(Path("jobs/icd10cm_ce.yaml"), {"train.views": 1})
    assert job_of(loaded_job, heads).views == 1


@pytest.mark.parametrize(("trials", "race", "neighbours"), [(3, None, "knn_best"), (6, 1, "knn")])
def test_searches_of_one_trial_have_no_race_and_each_seed_its_neighbours(tmp_path, trials, race, neighbours):
    from mlcl.api.comparing import comparison_table, prepare_user_data

    data = prepare_user_data({"text": TEXTS, "topic": TOPICS}, {"text": "text", "labels": "topic"}, tmp_path)
    first_job = data.first_job(None, data.description())
    table = comparison_table(first_job.job, first_job.space, ["supcon"], data, trials, 3, baselines=True)
    assert {row["tune"].get("race_seeds") for row in table["rows"].values() if row["tune"]} == {race}
    assert list(table["metrics"].values())[:2] == [
        f"{neighbours}/test/accuracy",
        f"{neighbours}/test/macro_f1",
    ]
    metrics = list(table["rows"]["majority"]["metrics"].values())
    assert metrics == ["test/accuracy", "test/macro_f1"] * 2


def test_importing_the_package_is_light_and_names_its_functions():
    code = (
        "import sys, mlcl; assert not {'torch', 'ray', 'mlflow', 'numpy'} & set(sys.modules);"
        "assert set(mlcl.__all__) <= {*dir(mlcl), *mlcl._FUNCTIONS}"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'compair'"):
        mlcl.compair  # noqa: B018
