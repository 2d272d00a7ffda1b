"""`mlcl predict`: files, data sets and registered models, as a user labels them."""

import csv
import io
import json
import shutil

import pytest
from builders import tiny_job
from e2e.conftest import Cli
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.service.run_job import run_job
from mlcl.tracking import Tracker


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def report(home, tiny):
    """A run that has been exported and registered."""
    report = run_job(tiny_job(tiny, epochs=3), home=home, listener=lambda _: None)
    words = ["export", report.id, "--to", str(home / "model"), "--register", "tiny", "--home", str(home)]
    assert CliRunner().invoke(app, words).exit_code == 0
    return report


def predict(home, model, *words):
    answer = CliRunner().invoke(app, ["predict", str(model), *map(str, words), "--home", str(home)])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    assert answer.exit_code == 0, answer.output
    return answer


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "in.csv").write_text("id,text\na,vote noise1\nb,ball noise2\n")
    return tmp_path / "in.csv"


def test_a_file_to_standard_output(home, report, texts):
    answer = predict(home, home / "model", texts)
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert [(row["id"], row["label"], row["label.topic"]) for row in rows] == [
        ("a", "vote", "state"), ("b", "ball", "sport")
    ]  # fmt: skip
    assert "2 rows by " in answer.stderr


def test_a_registered_model_by_alias_and_by_version(home, report, texts):
    folder = predict(home, home / "model", texts).stdout
    assert predict(home, "models:/tiny@champion", texts).stdout == folder
    assert predict(home, "models:/tiny/1", texts).stdout == folder
    for name, problem in {
        "models:/tiny": "names no model",
        "models:/tiny@loser": "no such registered model",
        "models:/none/1": "no such registered model",
    }.items():
        with pytest.raises(UserError, match=problem):
            predict(home, name, texts)


def test_a_pyfunc_of_somebody_else(home, report, texts, tmp_path):
    client = Tracker(home).client
    ours = client.get_run(report.mlflow_run_id)
    theirs = client.create_run(ours.info.experiment_id)
    (tmp_path / "weights").write_text("")
    client.create_registered_model("foreign")
    for number, (run, place) in enumerate([(theirs, "pyfunc"), (ours, "other/pyfunc")], start=1):
        client.log_artifact(run.info.run_id, str(tmp_path / "weights"), f"{place}/artifacts")
        client.create_model_version("foreign", f"{run.info.artifact_uri}/{place}", run.info.run_id)
        with pytest.raises(UserError, match=f"not an exported model; found: models:/foreign/{number}"):
            predict(home, f"models:/foreign/{number}", texts)


def test_a_data_set_is_scored_as_the_run_was(home, report, tiny, tmp_path):
    answer = predict(home, home / "model", tiny, "--out", tmp_path / "out.jsonl", "--json")
    told = json.loads(answer.stdout)
    metrics = {name: value for name, value in report.metrics.items() if "test/" in name}
    assert (told["rows"], told["metrics"]) == (24, metrics)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 24
    table = predict(home, home / "model", tiny, "--split", "validation", "--out", tmp_path / "out.csv").stdout
    assert "knn_best/accuracy" in table
    printed = predict(home, home / "model", tiny, "--way", "knn")
    assert printed.stdout.startswith("id,label,probability,label.topic\ntest0,")
    assert "knn/accuracy" in printed.stderr


def test_a_place_with_brackets_in_its_name(home, report, tiny, tmp_path):
    place = shutil.copytree(tiny, tmp_path / "a[/b]")
    assert f"{place}, test" in " ".join(predict(home, home / "model", place).stderr.split("\n"))


def test_options(home, report, texts, tmp_path):
    words = ("--out", tmp_path / "out.jsonl", "--probabilities", "--batch-size", 1, "--device", "cpu")
    predict(home, home / "model", texts, *words)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(line["probabilities"]) for line in lines] == [4, 4]
    assert [max(line["probabilities"]) == line["probability"] for line in lines] == [True, True]


def test_bad_input(home, report, texts, tiny, tmp_path):
    with pytest.raises(UserError, match="not an exported model"):
        predict(home, tmp_path / "nowhere", texts)
    with pytest.raises(UserError, match="not a form that can be written"):
        predict(home, home / "model", texts, "--out", tmp_path / "out.xls")
    with pytest.raises(UserError, match="no such way"):
        predict(home, home / "model", texts, "--way", "best")
    with pytest.raises(UserError, match="no such split"):
        predict(home, home / "model", tiny, "--split", "dev")
    with pytest.raises(UserError, match="key split: is of a data set, and this is none; found: test"):
        predict(home, home / "model", texts, "--split", "test")
    with pytest.raises(UserError, match="key threshold: is for several labels"):
        predict(home, home / "model", texts, "--threshold", 0.5)
    with pytest.raises(UserError, match="would replace what is read"):
        predict(home, home / "model", texts, "--out", home / "model" / "datastore.parquet")
    with pytest.raises(UserError, match="would replace what is read"):
        predict(home, home / "model", texts, "--out", texts)
    texts.write_text("id,body\n1,x\n")
    with pytest.raises(UserError, match="no such column"):
        predict(home, home / "model", texts, "--out", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_from_a_run_to_labels_as_a_user_types_it(tiny, tmp_path):
    mlcl = Cli(tmp_path, tiny)
    report = mlcl("run", mlcl.job, "--json", "train.epochs=4").json
    exported = mlcl("export", report["id"], "--to", "model")
    assert (exported.status, (tmp_path / "model" / "README.md").exists()) == (0, True), exported.err
    scored = mlcl("predict", "model", tiny, "--json")
    assert scored.json["metrics"] == {name: v for name, v in report["metrics"].items() if "test/" in name}
    refused = mlcl("predict", "model", "absent.csv")
    assert (refused.status, refused.err) == (2, "error: absent.csv: no such file or folder\n")
