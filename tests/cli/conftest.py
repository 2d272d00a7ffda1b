"""Commands in the process of the test: what a process would print and return, without its start."""

import sys

import pytest
import yaml
from builders import job_tree
from e2e.conftest import Answer

from mlcl.cli import main


@pytest.fixture
def here(tmp_path, tiny, monkeypatch, capsys):
    """`mlcl` as a process calls it, in a folder with a job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["mlcl", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        return Answer(ended.value.code or 0, *capsys.readouterr())

    return call
