"""Tests `mlcl predict` on files, on data sets and with registered models."""

import csv
import io
import json
import shutil

import pytest
from commands import mlcl
from e2e.conftest import Cli

from mlcl.tracking import Tracker


@pytest.fixture
def predict(lab):
    def predict(model, data, *words, home=lab.home):
        answer = mlcl("predict", model, data, *words, "--home", home)
        assert answer.status == 0, answer.err
        return answer

    return predict


def test_a_file_to_standard_output_by_a_folder_and_by_registered_names(lab, predict):
    texts = lab.folder / "in.csv"
    answer = predict(lab.model, texts)
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [(row["id"], row["label"], row["label.topic"]) for row in rows] == [
        ("a", "vote", "state"), ("b", "ball", "sport")
    ]  # fmt: skip
    assert "2 rows by " in answer.err
    assert predict("models:/tiny@champion", texts).out == answer.out
    assert predict("models:/tiny/1", texts).out == answer.out


def test_a_registered_model_in_a_moved_home_and_a_pyfunc_of_somebody_else(lab, home, predict, tmp_path):
    texts = lab.folder / "in.csv"
    assert "2 rows by " in predict("models:/tiny@champion", texts, home=home).err
    client = Tracker(home).client
    run_info = client.create_run(client.get_experiment_by_name("tiny").experiment_id).info
    (tmp_path / "weights").write_text("")
    client.create_registered_model("foreign")
    client.log_artifact(run_info.run_id, str(tmp_path / "weights"), "pyfunc/artifacts")
    client.create_model_version("foreign", f"{run_info.artifact_uri}/pyfunc", run_info.run_id)
    answer = mlcl("predict", "models:/foreign/1", texts, "--home", home)
    message = "not an exported model; found: models:/foreign/1"
    assert (answer.status, message in answer.err) == (2, True), answer


def test_a_data_set_is_scored_as_the_run_was(lab, predict, tiny, tmp_path):
    result = predict(lab.model, tiny, "--out", tmp_path / "out.jsonl", "--json").json
    metrics = {name: value for name, value in lab.report.metrics.items() if "test/" in name}
    assert (result["rows"], result["metrics"]) == (24, metrics)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 24
    table = predict(lab.model, tiny, "--split", "validation", "--out", tmp_path / "out.csv").out
    assert "knn_best/accuracy" in table
    answer = predict(lab.model, tiny, "--predictor", "knn")
    assert answer.out.startswith("id,label,probability,label.topic\ntest0,")
    assert "knn/accuracy" in answer.err
    dataset = shutil.copytree(tiny, tmp_path / "a[/b]")
    assert f"{dataset}, test" in " ".join(predict(lab.model, dataset).err.split("\n"))


def test_options(lab, predict, tmp_path):
    out, options = tmp_path / "out.jsonl", ("--batch-size", 1, "--device", "cpu")
    predict(lab.model, lab.folder / "in.csv", "--out", out, "--probabilities", *options)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [len(line["probabilities"]) for line in lines] == [4, 4]
    assert [max(line["probabilities"]) == line["probability"] for line in lines] == [True, True]


@pytest.mark.slow
def test_from_a_run_to_labels_as_a_user_types_it(tiny, tmp_path):
    mlcl = Cli(tmp_path, tiny)
    report = mlcl("run", mlcl.job, "--json", "train.epochs=4").json
    export_answer = mlcl("export", report["id"], "--to", "model")
    assert (export_answer.status, (tmp_path / "model" / "README.md").exists()) == (0, True), export_answer.err
    predict_answer = mlcl("predict", "model", tiny, "--json")
    assert predict_answer.json["metrics"] == {
        name: value for name, value in report["metrics"].items() if "test/" in name
    }
    missing_answer = mlcl("predict", "model", "absent.csv")
    assert (missing_answer.status, missing_answer.err) == (2, "error: absent.csv: no such file or folder\n")
