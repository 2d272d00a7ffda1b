"""Tests `mlcl export`, from MLflow's runs to a folder and a registered model."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import mlflow
import pandas as pd
import pytest
from builders import job_tree, png, shades, tiny_job
from commands import mlcl
from mlflow.exceptions import MlflowException
from mlflow_servers import mlflow_server

from mlcl import load_model
from mlcl.config import Goal, load_job
from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.results.documents import document
from mlcl.results.sweep_result import SweepResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.service.local.settings import read_secret
from mlcl.service.run_job import run_job
from mlcl.significance.roles import Role
from mlcl.tracking import State, Tracker
from mlcl.tracking.pyfunc import find_model, log_model


def run(home, data, *overrides, **train):
    return run_job(tiny_job(data, *overrides, **train), home=home, listener=lambda _: None)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def report(home, tiny):
    """Returns a finished run in MLflow."""
    return run(home, tiny, epochs=3)


@pytest.fixture(scope="module")
def client(home, report):
    return Tracker(home).client


def export(home, *words):
    answer = mlcl("export", *words, "--home", home)
    assert answer.status == 0, answer.err
    return answer.json if "--json" in words else answer.out


def refusal(home, *words):
    answer = mlcl("export", *words, "--home", home)
    assert (answer.status, answer.out) == (2, "")
    return answer.err


def test_what_a_killed_export_left_under_the_home_is_removed(home, report):
    models = home / "models"
    (models / ".mine.ab.partial").mkdir(parents=True)
    export(home, report.mlflow_run_id, "--to", models / "mine")
    assert sorted(path.name for path in models.iterdir()) == [".mine.lock", "mine"]


def test_what_a_killed_export_left_beside_a_folder_elsewhere_is_removed(home, report, tmp_path):
    for name in (".mine.ab.partial", ".other.ab.partial"):
        (tmp_path / name).mkdir()
    export(home, report.mlflow_run_id, "--to", tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.ab.partial", "mine"]


def made(client, **tags):
    """Creates a run in MLflow with these tags and nothing else, and returns its id."""
    experiment = client.get_experiment_by_name("tiny").experiment_id
    run_tags = {f"mlcl.{name}": value for name, value in tags.items()}
    return client.create_run(experiment, tags=run_tags).info.run_id


def test_a_run_by_mlflows_id_and_by_its_own(home, report, tmp_path):
    for number, word in enumerate((report.mlflow_run_id, report.id)):
        folder = tmp_path / f"model{number}"
        result, run_id = export(home, word, "--to", folder, "--json"), report.mlflow_run_id
        assert [result[key] for key in ("folder", "run_id", "registered")] == [str(folder), run_id, None]
        assert result["metrics"].items() <= report.metrics.items()
        index = load_model(folder).index
        assert (result["best"], list(result["predictors"])) == (index.best, list(index.predictors))
        assert [index.provenance[key] for key in ("run_id", "name")] == [run_id, report.id]
    first, second = (sorted((tmp_path / f"model{n}").glob("*.*"))[1:] for n in (0, 1))
    # The README is left out, because it has the folder's name.
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_run_whose_source_file_is_elsewhere_is_read_from_the_prepared_data(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"text": [f"{'vote' if row % 2 else 'ball'} {row}" for row in range(60)]})
    frame["detail"] = [("state", "sport")[row % 2] for row in range(60)]
    frame["split"] = [("train", "train", "validation", "test")[row // 15] for row in range(60)]
    frame.to_csv("rows.csv", index=False)
    tree = job_tree(Path("none"), epochs=1) | {"experiment": "moved"}
    options = {
        "path": "rows.csv",
        "text": "text",
        "split": "split",
        "labels": {"detail": {"kind": "single", "column": "detail"}},
    }
    tree["data"] = {"source": "csv", "options": options}
    del tree["objective"]["heads"]["topic"]
    run_report = run_job(load_job(tree), home=home, listener=lambda _: None)

    Path("rows.csv").unlink()
    result = export(home, run_report.id, "--to", tmp_path / "model", "--json")
    assert result["metrics"].items() <= run_report.metrics.items()
    answer = mlcl("posthoc", run_report.id, "--home", home, "--json")
    assert (answer.status, answer.json["chosen"][0]["seeds"]) == (0, 1)
    with pytest.raises(UserError, match="no such file"):
        run_job(load_job(tree, ["train.epochs=2"]), home=home, listener=lambda _: None)


def test_people_are_told_how_to_load_it(home, report):
    text = export(home, report.id)
    folder = home / "models" / report.mlflow_run_id
    assert f'load_model("{folder}")' in text
    assert "knn_best/accuracy" in text
    assert "already exists" in refusal(home, report.id)
    (home / "file").touch()
    assert "already exists" in refusal(home, report.id, "--to", home / "file")


def test_a_sweep_stands_for_its_best_trial(home, report, client, tmp_path):
    best = TrainingResult("trial-0000", "trial 0", State.COMPLETE, score=0.5, log=report.id)
    for id, trials in (("s1", (best,)), ("s2", ())):  # the later one has no best trial
        run_id = made(client, kind="sweep", id=id, name="seek", state="COMPLETE")
        goals = (Goal("val/accuracy", "max"),)
        sweep = SweepResult(id, "seek", State.COMPLETE, "", Path(), goals, "val/accuracy", "max", trials)
        client.log_text(run_id, json.dumps(document(sweep)), "sweep.json")
    for word in ("seek", "s1"):
        assert export(home, word, "--to", tmp_path / word, "--json")["run_id"] == report.mlflow_run_id
    assert "this sweep has no best trial" in refusal(home, "s2")
    assert "did you mean seek" in refusal(home, "seak")


def test_the_card_of_a_sweeps_run_has_the_sweeps_figures_and_verdicts(home, tiny, client, tmp_path):
    report = run(home, tiny, "train.seed=9", epochs=1)
    training = TrainingResult("a", "", State.COMPLETE, seed=9, log=report.id, job_hash="j9")
    metrics = {**report.metrics, "test/accuracy": 0.5}
    other_training = replace(training, key="b", log="", seed=1, metrics=metrics, job_hash="j1")
    seeds, score = (training, other_training), "val/accuracy"
    heads = SettingResult(
        "heads", ("best found",), State.COMPLETE, {}, seeds, "heads", Role.MODEL, arm="heads"
    )
    control = replace(heads, key="c", name="control", arm="control", role=Role.BASELINE | Role.CONTROL)
    goals, settings = (Goal(score, "max"),), (heads, control)
    sweep = SweepResult("s3", "told", State.COMPLETE, "", Path(), goals, score, "max", (), settings)
    sweep_run = made(client, kind="sweep", id="s3", name="told", state="COMPLETE")
    client.log_text(sweep_run, json.dumps(document(sweep)), "sweep.json")
    client.set_tag(report.mlflow_run_id, "mlflow.parentRunId", sweep_run)
    export(home, "told", "--to", tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    assert "best found of the sweep told, 2 seeds:" in text
    assert "makes no difference" in text or "make no difference" in text
    assert "| test/accuracy |" in text


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        *(({"state": state}, f"not a complete run; found: RUN ({state}); allowed: COMPLETE")
          for state in ("PRUNED", "RUNNING", "FAILED")),
        ({"state": "COMPLETE"}, "allowed: a run with model/ and embeddings.parquet"),
        ({"kind": "confirmation", "state": "COMPLETE"}, "allowed: one of the runs that it holds"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_exported(home, client, tags, said):
    run_id = made(client, id="a", **tags)
    assert said.replace("RUN", run_id, "(" in said) in refusal(home, run_id)


def test_a_name_of_several_runs_lists_them(home, client):
    twins = [made(client, id="trial 1", kind="trial", state="COMPLETE") for _ in range(2)]
    line = refusal(home, "trial 1")
    assert [twin for twin in ("names several runs", *twins) if twin not in line] == []


AS_PYFUNC = """
import sys
import mlflow, pandas as pd

model = mlflow.pyfunc.load_model(sys.argv[1])
frame = pd.read_parquet(sys.argv[2])
model.predict(frame).to_parquet(sys.argv[3])
model.predict(frame, params={"predictor": "classifier"}).to_parquet(sys.argv[4])
print(model.metadata.signature.inputs.input_names(), model.metadata.signature.outputs.input_names())
"""


def pyfunc(uri, model, texts, folder, root):
    """Returns default predictions and those of the classifier from a separate process, and its output."""
    pd.DataFrame({"text": texts}).to_parquet(folder / "in.parquet")
    files = [str(folder / f"{name}.parquet") for name in ("in", "best", "classifier")]
    process = subprocess.run(
        [sys.executable, "-c", AS_PYFUNC, model, *files],
        capture_output=True, text=True, check=False, cwd=root, env={**os.environ, "MLFLOW_TRACKING_URI": uri},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return [pd.read_parquet(file) for file in files[1:]], process.stdout


def logged(client, report):
    """Returns the run's model in MLflow, and its folder."""
    model = find_model(client, client.get_run(report.mlflow_run_id))
    return model, Path(model.artifact_location.removeprefix("file://"))


def test_the_registered_model_predicts_as_the_folder(home, tiny, client, tmp_path, root):
    report = run(home, tiny, "train.seed=3", epochs=2)
    words = (report.mlflow_run_id, "--register", "tiny", "--json")
    result = export(home, *words)
    assert (result["folder"], result["registered"]) == (None, "models:/tiny@champion (version 1)")
    second_result = export(home, *words, "--alias", "other", "--to", tmp_path / "kept")
    assert second_result["registered"] == "models:/tiny@other (version 1)"
    (version,) = client.search_model_versions("name = 'tiny'")
    assert version.run_id == report.mlflow_run_id
    assert client.get_registered_model("tiny").aliases.keys() == {"champion", "other"}
    run_after = client.get_run(report.mlflow_run_id)
    assert run_after.info.status == "FINISHED"

    texts = Dataset.open(tiny).split("test").texts()
    frames, output = pyfunc(Tracker(home).uri, "models:/tiny@champion", texts, tmp_path, root)
    model = load_model(tmp_path / "kept")
    for frame, predictor in zip(frames, (None, "classifier"), strict=True):
        pd.testing.assert_frame_equal(
            frame, pd.DataFrame(dict(model.predict(texts, predictor=predictor).columns))
        )
    assert output == "['text'] ['label', 'probability', 'label.topic']\n"
    model, model_folder = logged(client, report)
    assert version.source == model.artifact_location
    assert not list(model_folder.rglob("*.pkl"))
    assert "torch==" in (model_folder / "requirements.txt").read_text()


def test_the_model_has_the_figures_parameters_and_data_set_of_its_run(home, tiny, client):
    report = run(home, tiny, "train.seed=8", epochs=1)
    export(home, report.id, "--register", "linked")
    mlflow_run, (model, _) = client.get_run(report.mlflow_run_id), logged(client, report)
    assert [output.model_id for output in mlflow_run.outputs.model_outputs] == [model.model_id]
    assert model.params == mlflow_run.data.params
    (data,) = (dataset_input.dataset for dataset_input in mlflow_run.inputs.dataset_inputs)
    metrics = {point.key: (point.value, point.dataset_name, point.dataset_digest) for point in model.metrics}
    assert {key.rpartition("/")[2] for key in metrics} >= {"accuracy", "macro_f1"}
    assert metrics == {
        key: (value, data.name, data.digest)
        for key, value in mlflow_run.data.metrics.items()
        if "val/" in key or "test/" in key
    }


def test_an_interrupted_upload_leaves_no_model(home, tiny, client):
    mlflow_run = client.get_run(run(home, tiny, "train.seed=7", epochs=1).mlflow_run_id)
    with pytest.raises(KeyboardInterrupt):
        log_model(client, mlflow_run, Mock(side_effect=KeyboardInterrupt))
    assert not client.search_logged_models(
        [mlflow_run.info.experiment_id], f"source_run_id = '{mlflow_run.info.run_id}'"
    )


TASKS = {
    "labels": ("objective.classifier={loss: bce, labels: tags}", "evaluation.metric=val/micro_f1"),
    "ratings": ("objective.classifier.labels=ratings",),
    "baseline": ("objective.classifier={loss: bce, labels: tags}", "baseline=text_svm"),
    "shades": (
        "objective.classifier.labels=kind", "evaluation.knn=null", "train.batch_size=4",
        "encoder={name: cnn_image, width: 4, blocks: 1, image_size: 8}",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return shades(tmp_path_factory.mktemp("shades") / "data")


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_a_pyfunc(task, home, tiny, client, images, tmp_path):
    report = run(home, images if task == "shades" else tiny, "objective.heads={}", *TASKS[task], epochs=1)
    export(home, report.id, "--to", tmp_path / "model", "--register", task)
    column, inputs = ("image", [png(20), png(235)]) if task == "shades" else ("text", ["ball noise1", "law"])
    model, rows = mlflow.pyfunc.load_model(str(logged(client, report)[1])), pd.DataFrame({column: inputs})
    expected = dict(load_model(tmp_path / "model").predict(inputs).columns)
    pd.testing.assert_frame_equal(model.predict(rows), pd.DataFrame(expected))
    with pytest.raises(MlflowException, match="this model has no such predictor; found: svm") as error:
        model.predict(rows, params={"predictor": "svm"})
    assert error.value.get_http_status_code() == 400


def test_a_better_run_takes_the_alias(home, tiny, client):
    reports = [run(home, tiny, f"train.seed={seed}", epochs=1) for seed in (4, 5)]
    for number, report in enumerate(reports, start=1):
        result = export(home, report.id, "--register", "line", "--json")
        assert result["registered"] == f"models:/line@champion (version {number})"
    assert client.get_model_version_by_alias("line", "champion").run_id == reports[1].mlflow_run_id


def test_a_format_that_does_not_fit_is_refused(home, report, tmp_path):
    line = refusal(home, report.id, "--to", tmp_path / "new", "--also", "sentence-transformers")
    assert "key --also: sentence-transformers is for the encoder transformer; found: encoder cnn_text" in line
    line = refusal(home, report.id, "--to", tmp_path / "new", "--also", "ONNX")
    assert "no such format; found: ONNX; allowed: onnx, sentence-transformers" in line
    assert not (tmp_path / "new").exists()


def test_names_that_mlflow_does_not_take(home, report, client):
    for alias in ("v1", "latest", "two words", "a@b", ""):
        assert "key --alias: no alias" in refusal(home, report.id, "--register", "tiny2", "--alias", alias)
    for name in ("a/b", "a@b", "a:b", " ", ""):
        assert "key --register: no name of a model" in refusal(home, report.id, "--register", name)
    assert "MLflow does not take it; found: ..@champion" in refusal(home, report.id, "--register", "..")
    assert client.search_model_versions(f"run_id = '{report.mlflow_run_id}'") == []
    assert find_model(client, client.get_run(report.mlflow_run_id)) is None


def test_two_names_share_the_pyfunc(home, tiny, client, tmp_path):
    report = run(home, tiny, "train.seed=6", epochs=1)
    export(home, report.id, "--register", "first")
    model_file = logged(client, report)[1] / "MLmodel"
    before = model_file.read_bytes()
    export(home, report.id, "--register", "second", "--to", tmp_path / "elsewhere")
    assert model_file.read_bytes() == before
    versions = client.search_model_versions(f"run_id = '{report.mlflow_run_id}'")
    assert {version.name for version in versions} == {"first", "second"}
    version_tags = json.loads(logged(client, report)[0].tags["mlflow.modelVersions"])
    assert version_tags == [{"name": "first", "version": "1"}, {"name": "second", "version": "1"}]
    assert len({version.source for version in versions}) == 1


@pytest.mark.slow
def test_through_a_server(tiny, tmp_path, monkeypatch, root):
    """Artifacts are sent and read over HTTP, because a home other than the run's has none of its files."""
    with mlflow_server(tmp_path / "server") as (server, folder):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", read_secret(folder.mlflow_user))
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", read_secret(folder.mlflow_password))
        report = run(tmp_path / "ada", tiny, epochs=2)
        for _ in range(2):
            result = export(tmp_path / "bob", report.id, "--register", "tiny", "--json")
            assert result["registered"] == "models:/tiny@champion (version 1)"
        scores = mlcl("predict", "models:/tiny@champion", tiny, "--json", "--home", tmp_path / "eve").json
        assert scores["metrics"] == {name: value for name, value in report.metrics.items() if "test/" in name}
        texts = Dataset.open(tiny).split("test").texts()
        (frame, _), _ = pyfunc(server.address, "models:/tiny@champion", texts, tmp_path, root)
        assert len(frame) == 24
