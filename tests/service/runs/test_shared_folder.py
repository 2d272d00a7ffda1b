"""Folders on the nodes of a cluster."""

from pathlib import Path

from mlcl.service.runs.shared_folder import enter_workdir


def test_a_process_stands_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    enter_workdir(str(tmp_path / "there"))
    assert Path.cwd() == tmp_path / "there"
    enter_workdir(str(tmp_path / "not here"))
    assert Path.cwd() == tmp_path / "there"
