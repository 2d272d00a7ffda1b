"""docs/spaces.md says what is: its spaces load, and the output that it shows is the command's."""

import re

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.config import load_job, load_space

JOB = "jobs/icd10cm_mlcl.yaml"


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "spaces.md").read_text()


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


def test_every_shipped_space_says_with_which_job_it_is_swept(root):
    files = sorted((root / "tune_spaces").glob("*.yaml"))
    assert len(files) > 10
    for file in files:
        head = file.read_text().partition("\nspace:")[0]
        jobs = re.findall(rf"mlcl sweep (jobs/\w+\.yaml) tune_spaces/{file.name}", head)
        assert jobs, file
        assert all((root / job).is_file() for job in jobs), file
