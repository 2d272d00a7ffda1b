"""`mlcl space describe`, and the spaces that are shipped."""

import json
import re

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import load_job, load_space
from mlcl.config.space import corners
from mlcl.errors import UserError

SHIPPED = [
    "features",
    "features_heads",
    "features_heads_noise",
    "features_knn_noise",
    "features_labels",
    "features_labels_asl",
    "features_labels_heads",
    "features_labels_heads_sum",
    "features_labels_knn_sum",
    "gamma",
    "head_weights",
    "levels",
    "mlcl_joint",
    "posthoc",
    "temperatures",
]


def job_of(root, text):
    """The job that a space's own comment sweeps it over."""
    (command,) = re.findall(r"^# +mlcl sweep (jobs/\S+) (tune_spaces/\S+)", text, re.MULTILINE)
    return root / command[0], root / command[1]


def describe(*arguments):
    return CliRunner().invoke(app, ["space", "describe", *map(str, arguments)])


def test_the_shipped_spaces_are_those(root):
    assert sorted(path.stem for path in (root / "tune_spaces").glob("*.yaml")) == SHIPPED


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
    answer = describe(root / "tune_spaces/head_weights.yaml", root / "jobs/icd10cm_mlcl.yaml")
    assert answer.exit_code == 0
    assert "objective.classifier.weight" in answer.stdout
    assert "3 weights, total 1" in answer.stdout
    assert "combinations: continuous" in answer.stdout
    assert "stick" not in answer.stdout


def test_a_space_for_machines_with_an_override(root):
    answer = describe(
        root / "tune_spaces/mlcl_joint.yaml",
        root / "jobs/icd10cm_mlcl.yaml",
        "objective.heads.extra={loss: simclr, weight: 0.1}",
        "--json",
    )
    told = json.loads(answer.stdout)
    names = [parameter["name"] for parameter in told["parameters"]]
    assert "objective.heads.extra.temperature" in names
    assert told["goals"] == [{"metric": "val/accuracy", "mode": "max"}]
    assert told["posthoc"]["settings"] == 6 * 21 * 21


def test_only_post_hoc_keys(root):
    answer = describe(root / "tune_spaces/posthoc.yaml", root / "jobs/icd10cm_mlcl.yaml", "--json")
    told = json.loads(answer.stdout)
    assert (told["parameters"], told["combinations"], told["example"]) == ([], 1, {})


def test_a_space_for_another_job_is_an_error(root):
    answer = describe(root / "tune_spaces/gamma.yaml", root / "jobs/icd10cm_mlcl.yaml")
    assert isinstance(answer.exception, UserError)
    assert answer.exception.key == "space.objective.heads.neighbours.weight"
