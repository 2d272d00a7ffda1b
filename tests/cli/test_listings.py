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
    listed = mlcl(*words, "--json").json
    assert set(listed) == set(registry(plural))
    table = mlcl(*words).out
    assert all(name[:4] in table for name in listed)
    name = next(iter(listed))
    shown = mlcl(*words, name, "--json").json[name]
    assert (shown["from"], bool(shown["what"])) == ("built in", True)


def test_options_are_those_of_a_loss_and_of_an_encoders_section():
    shown = mlcl("losses", "simdis", "--json").json["simdis"]["options"]
    assert list(shown) == list(LOSSES["simdis"].options)
    assert mlcl("losses", "knn", "--json").json["knn"]["year"] == 2022
    assert shown["penalty"] == {"default": "inverse", "allowed": "inverse, exponential"}
    assert shown["rate"] == {"default": None, "allowed": "a number above 0"}
    shown = mlcl("encoders", "cnn_text", "--json").json["cnn_text"]["options"]
    assert shown["width"] == {"default": 100, "allowed": "int", "what": "filters of each kernel size"}
    assert "name" not in shown


def test_a_data_set_is_prepared_checked_and_described(folder):
    rows = "".join(f"{i},text number {i},{'ab'[i % 2]}\n" for i in range(40))
    (folder / "reviews.csv").write_text(f"id,body,topic\n{rows}")
    labels = "labels={topic: {column: topic, kind: single}}"
    prepared = mlcl("data", "prepare", "csv", "--from", "reviews.csv", "text=body", "id=id", labels, "--json")
    assert prepared.status == 0, prepared.err
    path = prepared.json["path"]
    assert sum(prepared.json["rows"].values()) == 40
    assert "is sound" in mlcl("data", "check", path).out
    assert mlcl("data", "describe", path, "--json").json["labels"]["topic"]["classes"] == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_space_fits_the_job_that_it_names(name):
    path = ROOT / "tune_spaces" / f"{name}.yaml"
    text = re.sub(r"\\\n#", "", path.read_text())  # a command may continue in the next line
    (command,) = re.findall(r"^# +mlcl sweep (jobs/\S+) (tune_spaces/\S+)(.*)", text, re.MULTILINE)
    job, itself = (ROOT / each for each in command[:2])
    assert itself == path
    overrides = [word for word in command[2].split() if word.startswith("objective.")]
    checked = load_job(job, overrides)
    space = load_space(path, checked)
    assert space.parameters or space.posthoc
    heads = checked.objective.heads.keys()
    own = dump_job(checked)
    assert all(load_job(own, corner).objective.heads.keys() == heads for corner in corners(space))


def test_a_space_is_described_for_people_and_for_machines(monkeypatch):
    monkeypatch.chdir(ROOT)
    said = mlcl("space", "describe", "tune_spaces/head_weights.yaml", JOB).out
    parts = ("objective.classifier.weight", "3 weights, total 1", "combinations: continuous")
    assert ([part for part in parts if part not in said], "stick" in said) == ([], False)
    extra = "objective.heads.extra={loss: simclr, weight: 0.1}"
    told = mlcl("space", "describe", "tune_spaces/mlcl_joint.yaml", JOB, extra, "--json").json
    assert "objective.heads.extra.temperature" in [parameter["name"] for parameter in told["parameters"]]
    assert told["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert told["posthoc"]["settings"] == 6 * 21 * 21
    told = mlcl("space", "describe", "tune_spaces/posthoc.yaml", JOB, "--json").json
    assert (told["parameters"], told["combinations"], told["example"]) == ([], 1, {})


def test_the_page_on_spaces_shows_spaces_that_load_and_the_commands_output(monkeypatch, tmp_path):
    page = (ROOT / "docs" / "spaces.md").read_text()
    monkeypatch.chdir(ROOT)
    found = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    for text in found:
        (tmp_path / "space.yaml").write_text(text)
        assert load_space(tmp_path / "space.yaml", load_job(ROOT / JOB)).parameters
    command, shown = re.search(r"\$ mlcl (.*?)\n(.*?)```", page, re.DOTALL).groups()
    printed = mlcl(*command.split()).out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()
