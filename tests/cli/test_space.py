"""`mlcl space describe`, the shipped spaces, and docs/spaces.md."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import load_job, load_space
from mlcl.config.space.space import corners
from mlcl.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.stem for path in (ROOT / "tune_spaces").glob("*.yaml"))
JOB = "jobs/icd10cm_mlcl.yaml"


def job_of(root, text):
    """The job that a space's own comment sweeps it over."""
    (command,) = re.findall(r"^# +mlcl sweep (jobs/\S+) (tune_spaces/\S+)", text, re.MULTILINE)
    return root / command[0], root / command[1]


def describe(*arguments):
    return CliRunner().invoke(app, ["space", "describe", *map(str, arguments)])


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "spaces.md").read_text()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_space_fits_the_job_that_it_names(root, name):
    path = root / "tune_spaces" / f"{name}.yaml"
    job, itself = job_of(root, path.read_text())
    assert itself == path
    checked = load_job(job)
    space = load_space(path, checked)
    assert space.parameters or space.posthoc
    heads = checked.objective.heads.keys()
    assert all(load_job(job, corner).objective.heads.keys() == heads for corner in corners(space))


def test_a_space_for_people(root):
    answer = describe(root / "tune_spaces/head_weights.yaml", root / JOB)
    assert answer.exit_code == 0
    assert "objective.classifier.weight" in answer.stdout
    assert "3 weights, total 1" in answer.stdout
    assert "combinations: continuous" in answer.stdout
    assert "stick" not in answer.stdout


def test_a_space_for_machines_with_an_override(root):
    answer = describe(
        root / "tune_spaces/mlcl_joint.yaml",
        root / JOB,
        "objective.heads.extra={loss: simclr, weight: 0.1}",
        "--json",
    )
    told = json.loads(answer.stdout)
    names = [parameter["name"] for parameter in told["parameters"]]
    assert "objective.heads.extra.temperature" in names
    assert told["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert told["posthoc"]["settings"] == 6 * 21 * 21


def test_only_post_hoc_keys(root):
    answer = describe(root / "tune_spaces/posthoc.yaml", root / JOB, "--json")
    told = json.loads(answer.stdout)
    assert (told["parameters"], told["combinations"], told["example"]) == ([], 1, {})


def test_a_space_for_another_job_is_an_error(root):
    answer = describe(root / "tune_spaces/gamma.yaml", root / JOB)
    assert isinstance(answer.exception, UserError)
    assert answer.exception.key == "space.objective.heads.neighbours.weight"


def test_the_spaces_of_the_page_load(root, page, tmp_path):
    found = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    for text in found:
        (tmp_path / "space.yaml").write_text(text)
        assert load_space(tmp_path / "space.yaml", load_job(root / JOB)).parameters


def test_the_output_of_the_page_is_the_commands(root, page, monkeypatch):
    command, shown = re.search(r"\$ mlcl (.*?)\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.chdir(root)
    answer = CliRunner().invoke(app, command.split())
    assert [line.rstrip() for line in answer.stdout.splitlines()] == shown.splitlines()
