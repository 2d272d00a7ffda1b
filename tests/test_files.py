"""Tests of files that are replaced atomically, and of the removal of partial files."""

import io

from mlcl.files import remove_partial, replace_text


def test_a_tokenizer_is_written_the_same_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setattr(io, "text_encoding", lambda encoding, _level=2: encoding or "ascii")
    replace_text(tmp_path / "tokenizer.json", '{"größer": 1}')
    assert (tmp_path / "tokenizer.json").read_bytes().decode() == '{"größer": 1}'


def test_partial_files_of_a_longer_name_are_another_writers(tmp_path):
    for name in ("model.ab", "model.v2.ab", "set[1].ab"):
        (tmp_path / f".{name}.partial").touch()
    remove_partial(tmp_path, "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.v2.ab.partial", ".set[1].ab.partial"]
    remove_partial(tmp_path, "set[1]")
    assert [path.name for path in tmp_path.iterdir()] == [".model.v2.ab.partial"]
    remove_partial(tmp_path)
    assert not any(tmp_path.iterdir())
