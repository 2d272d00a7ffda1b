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


def test_the_page_names_every_shipped_space(root, page):
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert [name for name, _ in sorted(rows)] == sorted(p.stem for p in (root / "tune_spaces").glob("*.yaml"))
    for name, job in rows:
        assert (
            f"jobs/{job}.yaml tune_spaces/{name}.yaml" in (root / "tune_spaces" / f"{name}.yaml").read_text()
        )
