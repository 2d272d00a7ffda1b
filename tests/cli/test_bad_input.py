"""Bad input: one line, exit status 2, and nothing started."""

import json
import shutil

import pytest
import torch


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "absent.yaml"), "absent.yaml: no such file"),
        (("run", "job.yaml", "train.epoch=2"), "error: key train.epoch: unknown key; did you mean epochs"),
        (("run", "job.yaml", "nonsense"), "not an override"),
        (("run", "job.yaml", "objective.heads.detail.labels=detial"), "did you mean detail"),
        (("run", "job.yaml", "data.path=nowhere"), "not a prepared data set"),
        (("run", "job.yaml", "encoder={name: cnn_image}"), "reads images"),
        (("run", "job.yaml", "encoder={name: transformer, model: ./nowhere}"), "nowhere"),
        (("run", "job.yaml", "evaluation.metric=val/f1"), "no such metric"),
        pytest.param(
            ("run", "job.yaml", "train.device=cuda"),
            "no GPU is visible",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
        ),
        (("sweep", "job.yaml", "absent.yaml"), "absent.yaml: no such file"),
        (("data", "prepare", "icd10"), "did you mean icd10cm"),
        (("data", "check", "nowhere"), "not a prepared data set"),
        (("data", "describe", "nowhere"), "not a prepared data set"),
    ],
)
def test_one_line_and_status_2(here, tmp_path, arguments, text):
    answer = here(*arguments)
    assert answer.status == 2
    (line,) = answer.err.strip().splitlines()
    assert line.startswith("error: ")
    assert text in line
    assert answer.out == ""
    assert not (tmp_path / "outputs" / "mlflow.db").exists()


def test_with_json_the_error_is_a_document(here, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace("epochs:", "epoch:"))
    answer = here("run", "job.yaml", "--json")
    assert answer.status == 2
    error = answer.json["error"]
    assert (error["key"], error["found"], error["file"]) == ("train.epoch", "epoch", "job.yaml")
    assert "epochs" in error["allowed"]


def test_a_wrong_option_is_a_usage_error(here):
    assert here("run", "job.yaml", "--jsn").status == 2
    assert here("rnu", "job.yaml").status == 2
    assert here("sweep", "job.yaml").status == 2


def test_a_damaged_data_set_is_found_before_the_start(here, tiny, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    shard = next(iter(copy.glob("*.parquet")))
    shard.write_bytes(shard.read_bytes()[:-100])
    answer = here("run", "job.yaml", f"data.path={copy}")
    assert answer.status == 2
    assert shard.name in answer.err
    assert not (tmp_path / "outputs" / "mlflow.db").exists()


def test_data_commands(here, tmp_path):
    (tmp_path / "reviews.csv").write_text(
        "id,body,topic\n" + "".join(f"{i},text number {i},{'ab'[i % 2]}\n" for i in range(40))
    )
    prepared = here(
        "data", "prepare", "csv", "--from", "reviews.csv", "text=body", "id=id",
        "labels={topic: {column: topic, kind: single}}", "--json",
    )  # fmt: skip
    assert prepared.status == 0, prepared.err
    path = prepared.json["path"]
    assert sum(prepared.json["rows"].values()) == 40
    assert "is sound" in here("data", "check", path).out
    described = json.loads(here("data", "describe", path, "--json").out)
    assert described["labels"]["topic"]["classes"] == 2
    assert "icd10cm" in here("data", "sources").out


def test_a_broken_plugin_is_one_line_and_nothing_starts(here, tmp_path):
    (tmp_path / "dice.py").write_text("def :")
    with (tmp_path / "job.yaml").open("a") as job:
        job.write("plugins: [dice.py]\n")
    answer = here("run", "job.yaml")
    assert answer.status == 2
    assert (
        answer.err.strip() == "error: dice.py, key plugins: is no valid Python; found: line 1: invalid syntax"
    )
    assert not (tmp_path / "outputs").exists()
