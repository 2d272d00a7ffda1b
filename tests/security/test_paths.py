"""Tests that names which would lead out of a folder are refused or not found.

test_data.py tests the names of shards, tests/data/test_distribution.py the members of archives, and
tests/service/jobs/test_package.py the other files that `mlcl submit` uploads.
"""

import pytest
import ray.job_submission
import yaml
from builders import job_tree
from ray_jobs import Cluster
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import load_job
from mlcl.config.table.schema import find_table
from mlcl.errors import UserError
from mlcl.models.model_folder import model_folder
from mlcl.service.jobs.package import upload_files

OUT = ("../out", "../../etc/passwd", "/etc/passwd", "..", "a/../../b", "a\\..\\b", "~root", "a\nb")


@pytest.fixture
def mlcl(tmp_path, monkeypatch, tiny):
    """Returns a function that runs `mlcl` in a folder with job, space and cluster files on a fake cluster."""
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", Cluster())
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    trees = {
        "job": job_tree(tiny),
        "space": {"space": {"train.lr": {"log_float": [0.001, 0.1]}}},
        "lab": {"ray": {"address": "http://head:8265"}, "storage": "/mnt/lab"},
    }
    for name, tree in trees.items():
        (work / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    monkeypatch.setenv("MLCL_CLUSTER", "lab.yaml")

    def call(*words):
        answer = CliRunner().invoke(app, words)
        assert not [path for path in tmp_path.iterdir() if path != work], "something was written outside"
        return answer

    return call


NAMES = (
    *(((command, "{}"), OUT) for command in ("status", "logs", "stop", "resume")),
    (("submit", "--id", "{}", "run", "job.yaml"), [*OUT, "a/b", "a b", "-a", "a.b", "x" * 101]),
    (
        ("sweep", "job.yaml", "space.yaml", "--name", "{}", "--dry-run"),
        [n for n in (*OUT, "x" * 201) if n != ".."],
    ),
)


@pytest.mark.parametrize(
    ("words", "name"), [(words, name) for words, names in NAMES for name in names], ids=str
)
def test_names_of_jobs_and_sweeps(mlcl, words, name):
    error = mlcl(*(word.format(name) for word in words)).exception
    assert isinstance(error, UserError)
    assert error.found == name


@pytest.mark.parametrize("name", [*OUT, "x" * 201])
def test_names_of_experiments_and_heads(tiny, name):
    tree = job_tree(tiny)
    with pytest.raises(UserError) as error:
        load_job(tree | {"experiment": name})
    assert error.value.key == "experiment"
    heads = tree["objective"]["heads"]
    tree["objective"]["heads"] = {name: heads["topic"]}
    with pytest.raises(UserError) as error:
        load_job(tree)
    assert str(error.value.key).startswith("objective.heads")


@pytest.mark.parametrize("name", OUT)
def test_names_of_tables_and_sources(mlcl, tmp_path, name):
    with pytest.raises(UserError, match="no such table"):
        find_table(name, tmp_path)
    answer = mlcl("data", "prepare", name)
    assert isinstance(answer.exception, UserError)


@pytest.mark.parametrize("name", ["package:../../x", "package:/etc", "package:", "package:..", "package:a b"])
def test_names_of_packages_with_a_model(name):
    with pytest.raises(UserError) as error:
        model_folder(name)
    assert error.value.key == "encoder.model"


def test_links_are_not_uploaded(tmp_path):
    ssh_folder, work = tmp_path / "ssh", tmp_path / "work"
    for name in ("ssh/file", "work/job.yaml", "work/.env", "work/keys/lab.pem"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    links = {"ssh": ssh_folder, "absolute": ssh_folder / "file", "again": "../ssh/file", "loop": "loop"}
    links |= {"notes.txt": work / ".env", "folder": work / "keys"}
    for name, target in links.items():
        (work / name).symlink_to(target)
    assert [str(name) for name in upload_files(work)] == ["job.yaml"]
