"""Tests the commands that list plugins, data sets and spaces, and docs/spaces.md."""

import re
from pathlib import Path

import pytest
from commands import mlcl

from mlcl.config import dump_job, load_job, load_space
from mlcl.config.space.space import corners
from mlcl.losses import LOSSES
from mlcl.plugins import REGISTRIES, registry

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "tune_spaces").glob("*.yaml"))
JOB = "jobs/icd10cm_mlcl.yaml"


@pytest.mark.parametrize("plural", REGISTRIES)
def test_plugins_are_listed_and_one_is_shown_in_full(plural):
    words = ["data", "sources"] if plural == "sources" else [plural]
    plugins = mlcl(*words, "--json").json
    assert set(plugins) == set(registry(plural))
    table = mlcl(*words).out
    assert all(name[:4] in table for name in plugins)
    name = next(iter(plugins))
    plugin = mlcl(*words, name, "--json").json[name]
    assert (plugin["from"], bool(plugin["what"])) == ("built in", True)


def test_options_are_those_of_a_loss_and_of_an_encoders_section():
    options = mlcl("losses", "simdis", "--json").json["simdis"]["options"]
    assert list(options) == list(LOSSES["simdis"].options)
    assert mlcl("losses", "knn", "--json").json["knn"]["year"] == 2022
    assert options["penalty"] == {"default": "inverse", "allowed": "inverse, exponential"}
    assert options["rate"] == {"default": None, "allowed": "a number above 0"}
    options = mlcl("encoders", "cnn_text", "--json").json["cnn_text"]["options"]
    assert options["width"] == {"default": 100, "allowed": "int", "what": "filters of each kernel size"}
    assert "name" not in options


def test_a_data_set_is_prepared_checked_and_described(folder):
    rows = "".join(f"{i},text number {i},{'ab'[i % 2]}\n" for i in range(40))
    (folder / "reviews.csv").write_text(f"id,body,topic\n{rows}")
    labels = "labels={topic: {column: topic, kind: single}}"
    answer = mlcl("data", "prepare", "csv", "--from", "reviews.csv", "text=body", "id=id", labels, "--json")
    assert answer.status == 0, answer.err
    path = answer.json["path"]
    assert sum(answer.json["rows"].values()) == 40
    assert "is sound" in mlcl("data", "check", path).out
    assert mlcl("data", "describe", path, "--json").json["labels"]["topic"]["classes"] == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_space_fits_the_job_that_it_names(name):
    path = ROOT / "tune_spaces" / f"{name}.yaml"
    text = re.sub(r"\\\n#", "", path.read_text())  # a command may continue in the next line
    (command,) = re.findall(r"^# +mlcl sweep (jobs/\S+) (tune_spaces/\S+)(.*)", text, re.MULTILINE)
    job, space_path = (ROOT / argument for argument in command[:2])
    assert space_path == path
    overrides = [word for word in command[2].split() if word.startswith("objective.")]
    loaded_job = load_job(job, overrides)
    space = load_space(path, loaded_job)
    assert space.parameters or space.posthoc
    heads = loaded_job.objective.heads.keys()
    job_dict = dump_job(loaded_job)
    assert all(load_job(job_dict, corner).objective.heads.keys() == heads for corner in corners(space))


def test_a_space_is_described_for_people_and_for_machines(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = mlcl("space", "describe", "tune_spaces/head_weights.yaml", JOB).out
    parts = ("objective.classifier.weight", "3 weights, total 1", "combinations: continuous")
    assert ([part for part in parts if part not in text], "stick" in text) == ([], False)
    head = "objective.heads.extra={loss: simclr, weight: 0.1}"
    description = mlcl("space", "describe", "tune_spaces/mlcl_joint.yaml", JOB, head, "--json").json
    assert "objective.heads.extra.temperature" in [
        parameter["name"] for parameter in description["parameters"]
    ]
    assert description["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert description["posthoc"]["settings"] == 6 * 21 * 21
    description = mlcl("space", "describe", "tune_spaces/posthoc.yaml", JOB, "--json").json
    assert (description["parameters"], description["combinations"], description["example"]) == ([], 1, {})


def test_the_page_on_spaces_shows_spaces_that_load_and_the_commands_output(monkeypatch, tmp_path):
    page = (ROOT / "docs" / "spaces.md").read_text()
    monkeypatch.chdir(ROOT)
    texts = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(texts) == 3
    for text in texts:
        (tmp_path / "space.yaml").write_text(text)
        assert load_space(tmp_path / "space.yaml", load_job(ROOT / JOB)).parameters
    command, expected = re.search(r"\$ mlcl (.*?)\n(.*?)```", page, re.DOTALL).groups()
    output = mlcl(*command.split()).out
    assert [line.rstrip() for line in output.splitlines()] == expected.splitlines()
