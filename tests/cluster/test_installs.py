"""Tests that shipped files that install mlcl name extras with all the packages that they use."""

import re

import pytest
from project import PROJECT

INSTALL = re.compile(r"(?:mlcl|mlcl-\*\.whl\)|(?<=[\"'])\.)\[([a-z0-9,]+)\]")
"""Matches the installation of mlcl by a name, a wheel or a folder, with its extras."""
SERVICE = {"ray[default,train,tune]", "typer", "mlflow", "mlflow[auth]", "optuna", "boto3", "psycopg[binary]"}
ENCODERS = {"torchvision", "transformers", "peft"}
NEEDED = {
    "cluster/ray-aws.yaml": SERVICE | ENCODERS,  # the head's autoscaler imports boto3
    "docker/Dockerfile": SERVICE | ENCODERS,
    "Makefile": SERVICE
    | ENCODERS,  # cluster/lab.sh, cluster/slurm and cluster/aws run what `make setup` installs
}


def brought(extras):
    """Returns the packages of extras, and of the extras that these include, as pyproject.toml writes them."""
    packages = set()
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            if match := re.match(r"mlcl\[([a-z,]+)\]", line):
                packages |= brought(match[1].split(","))
            packages.add(re.match(r"[\w-]+(\[[\w,]+\])?", line)[0])
    return packages


def installs(text):
    return [extras.split(",") for extras in INSTALL.findall(text)]


def test_the_extras_without_ray_are_told_apart():
    assert not {"ray[default,train,tune]", "typer", "mlflow", "optuna"} & brought(
        ["images", "lora", "transformers"]
    )
    assert brought(["service", "images", "lora"]) >= SERVICE | ENCODERS
    assert installs('"$(echo ~/dist/mlcl-*.whl)[images,lora]"') == [["images", "lora"]]
    assert installs("--editable '.[all]'") == [["all"]]


@pytest.mark.parametrize("name", NEEDED)
def test_a_shipped_file_installs_what_it_runs(root, name):
    lines = installs((root / name).read_text())
    assert lines
    for extras in lines:
        assert brought(extras) >= NEEDED[name], extras


def test_no_other_shipped_file_installs_mlcl(root):
    files = [
        root / "Makefile",
        *(file for name in ("cluster", "docker") for file in (root / name).rglob("*")),
    ]
    names = {str(file.relative_to(root)) for file in files if file.is_file() and installs(file.read_text())}
    assert names == set(NEEDED)
