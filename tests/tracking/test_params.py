import re
import subprocess
import sys

import pytest
from builders import tiny_job

from mlcl.tracking import log_parameters, params_of, provenance, without_derived
from mlcl.tracking.provenance import code


def test_parameters_are_the_jobs_keys_with_short_names_and_log10_beside(tmp_path):
    params = params_of(
        tiny_job(
            tmp_path,
            "objective.heads.detail.temperature=0.01",
            "objective.heads.topic.temperature={learned: 1}",
            "train.encoder_lr=0.001",
        )
    )
    assert params["objective.heads.detail.temperature"] == "0.01"
    assert (params["tau.detail"], params["log10.tau.detail"]) == ("0.01", "-2")
    assert (params["log10.train.lr"], params["log10.train.encoder_lr"]) == ("-2", "-3")
    assert params["objective.heads.topic.temperature.learned"] == "1.0"
    assert "tau.topic" not in params
    assert params["objective.classifier.weight_value"] == params["alpha.classifier"] == "0.6"
    assert params["gamma"] == "0.4"
    derived = ("tau", "alpha", "gamma", "log10")
    assert not [name for name in without_derived(params) if name.startswith(derived)]
    assert "data.source" not in params


def test_a_list_has_its_items_beside_it_but_a_grid_has_not():
    settings = {"k": [1, 0.5], "x.temperature": 0.1, "none": None, "evaluation.knn.grid.k": [1, 3]}
    assert log_parameters(settings) == {
        "k": "[1, 0.5]", "k.0": "1", "k.1": "0.5", "x.temperature": "0.1", "log10.x.temperature": "-1",
        "evaluation.knn.grid.k": "[1, 3]",
    }  # fmt: skip


@pytest.mark.parametrize("value", [3.3e-13, 1.23456789012345e-07, 0.1 + 0.2, 5e-324, 1e22, 1.0])
def test_a_number_is_logged_as_it_is(value):
    assert float(log_parameters({"train.weight_decay": value})["train.weight_decay"]) == value


def test_keys_that_are_decided_after_training_are_no_parameters_yet(tmp_path):
    job, free_keys = tiny_job(tmp_path), ("evaluation.knn.k", "evaluation.knn.temperature")
    missing_keys = params_of(job).keys() - params_of(job, free_keys).keys()
    assert missing_keys == {*free_keys, "k", "tau", "log10.tau"}


def git(folder, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", folder, *arguments],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Returns a file of the package in its own repository with one commit."""
    git(tmp_path, "init", "-q")
    package = tmp_path / "mlcl" / "tracking" / "provenance.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    (tmp_path / "job.yaml").write_text("")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(sys.modules[code.__module__], "__file__", str(package))
    return package


def test_provenance_of_a_clean_and_a_changed_checkout(tmp_path, package):
    clean_provenance = provenance(tmp_path)
    assert len(clean_provenance.tags["mlflow.source.git.commit"]) == 40
    assert (clean_provenance.tags["mlcl.git.dirty"], clean_provenance.diff) == ("false", "")
    package.write_bytes("x = 'caf\u00e9'\n".encode("latin-1"))
    (tmp_path / "new.py").write_text("")
    dirty_provenance = provenance(tmp_path)
    assert dirty_provenance.tags["mlcl.git.dirty"] == "true"
    assert "+x = 'caf" in dirty_provenance.diff
    assert "new.py" in dirty_provenance.diff


def test_figures_of_earlier_commands_are_no_change_of_the_code(tmp_path, package):
    figures = tmp_path / "docs" / "figures [1]"
    figures.mkdir(parents=True)
    (figures / "old.json").write_text("{}")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "figures")
    (figures / "old.json").write_text("{1}")
    (figures / "new.json").write_text("{}")
    assert provenance(tmp_path).tags["mlcl.git.dirty"] == "true"
    for folder in (tmp_path, package.parent, figures):
        source = provenance(folder, ignored_folder=figures)
        assert (source.tags["mlcl.git.dirty"], source.diff) == ("false", "")
    assert provenance(tmp_path, ignored_folder=tmp_path.parent).tags["mlcl.git.dirty"] == "true"
    (tmp_path / "docs" / "new.py").write_text("")
    source = provenance(package.parent, ignored_folder=figures)
    assert (source.tags["mlcl.git.dirty"], "new.py" in source.diff, "json" in source.diff) == (
        "true",
        True,
        False,
    )


def test_provenance_without_git(tmp_path):
    source = provenance(tmp_path)
    assert "mlflow.source.git.commit" not in source.tags
    assert re.search(r"\btorch==\d+\.\d+", source.tags["mlcl.libraries"])
    assert re.search(r"^torch==\d+\.\d+", source.packages, re.MULTILINE)
    assert [tag for tag in source.tags if "version" in tag] == ["mlcl.version.mlcl"]


def test_the_code_is_the_packages_commit_with_changed_and_untracked_files(tmp_path, package):
    clean_code, new_file = code(), tmp_path / "mlcl" / "new.py"
    assert re.fullmatch(r"\S+ [0-9a-f]{12}", clean_code)
    for name in ("job.yaml", "notes.yaml", "mlcl/a.pyc"):  # files without code, and an ignored file
        (tmp_path / name).write_text("x")
        assert code() == clean_code
    codes = {clean_code}
    for path, text in ((new_file, ""), (new_file, "x = 1"), (new_file, "x = 2"), (package, "x = 1")):
        path.write_text(text)
        codes.add(code())
    new_file.rename(new_file.with_name("other.py"))
    codes.add(code())
    assert len(codes) == 6
    assert all(re.fullmatch(rf"{clean_code} \+[0-9a-f]{{8}}", version) for version in codes - {clean_code})
