"""Tests that the package of a job has the right files, no secrets and a limited size."""

import json
import subprocess
from pathlib import Path

import pytest

from mlcl.config.cluster import WorkingDir
from mlcl.errors import UserError
from mlcl.service.jobs.package import check_size, stage, upload_files
from mlcl.tracking.provenance import CARRIED, provenance


def write(root, *names, size=10):
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)


def git(root, *words):
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *settings, *words], check=True, capture_output=True)


def names(root, *exclude):
    return [str(name) for name in upload_files(root, exclude)]


def test_without_git_all_files_travel_but_caches(tmp_path):
    write(tmp_path, "job.yaml", "src/a.py", ".venv/lib.py", "src/__pycache__/a.pyc")
    assert names(tmp_path) == ["job.yaml", "src/a.py"]


def test_with_git_its_files_and_new_ones_travel_not_the_ignored(tmp_path):
    write(tmp_path, "job.yaml", "outputs/runs/model.pt", "new.yaml")
    (tmp_path / ".gitignore").write_text("outputs/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "job.yaml", ".gitignore")
    assert names(tmp_path) == ["job.yaml", "new.yaml"]
    (tmp_path / "job.yaml").unlink()  # git still lists the deleted file
    assert names(tmp_path) == ["new.yaml"]


def test_exclude_is_for_names_at_any_depth_or_paths_from_the_top(tmp_path):
    write(tmp_path, "a/data/x.bin", "data/y.bin", "b/keep.yaml", "b/c/drop.csv")
    assert names(tmp_path, "data") == ["b/c/drop.csv", "b/keep.yaml"]
    assert names(tmp_path, "/a/data", "*.csv") == ["b/keep.yaml", "data/y.bin"]


def test_what_looks_like_a_secret_stays_here(tmp_path):
    write(tmp_path, ".env", "keys/lab.pem", "id_rsa", "outputs/service/ray.token", "mlflow.db", "job.yaml")
    write(tmp_path, "id_ecdsa", "home/.git-credentials", "home/.pypirc")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", ".")
    assert names(tmp_path) == ["job.yaml"]


@pytest.mark.parametrize("home", ["", "outputs/"])
def test_results_of_a_home_in_the_folder_stay_here(tmp_path, home):
    folders = (
        "runs/a",
        "sweeps/b/trials/c",
        "logs/a",
        "cache/features",
        "artifacts/1",
        "reports/a",
        "service",
    )
    write(
        tmp_path, *(f"{home}{folder}/file" for folder in folders), f"{home}home.db", f"{home}home.db.backup"
    )
    write(tmp_path, f"{home}data/d/train.parquet", "job.yaml", "other/logs/notes.txt")
    assert names(tmp_path) == sorted([f"{home}data/d/train.parquet", "job.yaml", "other/logs/notes.txt"])


def test_too_large_names_the_largest(tmp_path):
    write(tmp_path, "small.yaml")
    write(tmp_path, "data/big.bin", size=3 * 2**20)
    write(tmp_path, "weights.pt", size=2 * 2**20)
    files = upload_files(tmp_path)
    check_size(tmp_path, files, 5.1)
    with pytest.raises(UserError) as error:
        check_size(tmp_path, files, 4)
    assert str(error.value.found).startswith(
        "5.0 MiB: data/big.bin (3.0 MiB), weights.pt (2.0 MiB), small.yaml"
    )
    assert error.value.allowed == "4 MiB"


def test_a_copy_is_made_with_where_it_came_from(tmp_path, monkeypatch):
    root, folder = tmp_path / "root", tmp_path / "staged"
    write(root, "jobs/a.yaml")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    (root / "jobs" / "a.yaml").write_text("changed")
    folder.mkdir()
    stage(WorkingDir(path=root), folder, [Path("jobs/a.yaml")])
    assert sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()) == [
        CARRIED,
        "jobs/a.yaml",
    ]
    assert (folder / "jobs" / "a.yaml").read_text() == "changed"
    source_provenance = provenance(root)
    assert json.loads((folder / CARRIED).read_text())["tags"]["mlcl.git.dirty"] == "true"
    monkeypatch.setenv("MLCL_JOB", "mlcl-1")
    staged_provenance = provenance(folder)
    assert staged_provenance.tags == source_provenance.tags | {"mlcl.job": "mlcl-1"}
    assert "+changed" in staged_provenance.diff


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("/etc/passwd", "name files from the working directory"),
        ("absent.yaml", "no such file"),
        ("../other.yaml", "not uploaded"),
        ("outputs/job.yaml", "not uploaded"),
    ],
)
def test_a_file_that_the_command_names_must_travel(tmp_path, file, problem):
    root = tmp_path / "root"
    write(root, "job.yaml", "outputs/job.yaml", "../other.yaml")
    (tmp_path / "staged").mkdir()
    with pytest.raises(UserError, match=problem):
        stage(WorkingDir(path=root, exclude=("outputs",)), tmp_path / "staged", [Path(file)])
    assert not list((tmp_path / "staged").iterdir())


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        upload_files(tmp_path / "absent")
