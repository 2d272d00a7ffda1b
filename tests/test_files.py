"""Files that are replaced whole."""

import io

from mlcl.files import replace_text


def test_a_tokenizer_is_written_the_same_in_any_locale(tmp_path, monkeypatch):
    monkeypatch.setattr(io, "text_encoding", lambda encoding, _level=2: encoding or "ascii")
    replace_text(tmp_path / "tokenizer.json", '{"größer": 1}')
    assert (tmp_path / "tokenizer.json").read_bytes().decode() == '{"größer": 1}'
