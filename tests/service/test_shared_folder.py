"""Folders on the nodes of a cluster."""

from pathlib import Path

from mlcl.service.shared_folder import stand_in


def test_a_process_stands_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    stand_in(str(tmp_path / "there"))
    assert Path.cwd() == tmp_path / "there"
    stand_in(str(tmp_path / "not here"))
    assert Path.cwd() == tmp_path / "there"
