"""Tests that examples/plugin can be installed, that its own tests pass and that a job trains with it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml


@pytest.fixture(scope="module")
def package(root, tmp_path_factory):
    """Returns a copy of the package, and the environment of a process in which it is installed."""
    folder = shutil.copytree(root / "examples" / "plugin", tmp_path_factory.mktemp("package") / "plugin")
    target = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", target, folder], check=True)
    paths = [str(target), *filter(None, [os.environ.get("PYTHONPATH")])]
    return folder, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def mlcl(package, *words):
    folder, variables = package
    process = subprocess.run(
        [sys.executable, "-m", "mlcl", *words], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
def test_its_own_tests_pass(package):
    folder, variables = package
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, "tests"]
    process = subprocess.run(pytest_, cwd=folder, env=variables, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
    assert " passed" in process.stdout


@pytest.mark.parametrize(("words", "name"), [("losses", "dice"), ("encoders", "bag_of_words")])
def test_it_is_listed_with_where_it_comes_from(package, words, name):
    assert mlcl(package, words, name, "--json")[name]["from"] == "mlcl-example 0.1"


@pytest.mark.slow
def test_a_job_trains_with_it(package, tiny, tmp_path):
    labels = ("objective.heads.section.labels=tags", "objective.classifier.labels=detail")
    report = mlcl(
        package, "run", "job.yaml", f"data={{path: {tiny}}}", *labels, "train.epochs=2",
        "train.batch_size=16", "train.device=cpu", "--home", str(tmp_path), "--json",
    )  # fmt: skip
    assert report["state"] == "COMPLETE"
    assert "test/accuracy" in report["metrics"]


def test_an_unknown_loss_says_where_the_known_ones_come_from(package, tmp_path):
    job = yaml.safe_load((package[0] / "job.yaml").read_text())
    job["objective"]["heads"]["section"]["loss"] = "dicee"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    process = subprocess.run(
        [sys.executable, "-m", "mlcl", "run", tmp_path / "job.yaml", "--dry-run"],
        env=package[1], capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 2
    message = " ".join(process.stderr.split())
    assert (
        "unknown loss; did you mean dice?; found: dicee; allowed: all, any, dice (mlcl-example 0.1),"
        in message
    )


def test_a_loss_is_twenty_lines_at_most(root):
    assert len((root / "examples/plugin/mlcl_example/dice.py").read_text().splitlines()) <= 20
