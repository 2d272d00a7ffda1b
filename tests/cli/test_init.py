"""Tests `mlcl init --names`, which reads the class names from a text or a file."""

import pytest

from mlcl.cli import init
from mlcl.errors import UserError

NAMES = ("sport", "new music", "law")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("names.txt", "sport\nnew music\nlaw\n"),
        ("names.csv", "\ufeffsport\r\nnew music\r\nlaw"),
        ("names.json", '[\n  "sport",\n  "new music",\n  "law"\n]\n'),
        ("names.txt", '["sport", "new music", "law"]'),
        ("id2label.json", '{\n  "2": "law",\n  "0": "sport",\n  "1": "new music"\n}'),
    ],
)
def test_the_names_in_a_file_are_read_in_order(tmp_path, file, content):
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert init._read_names(str(tmp_path / file)) == NAMES


def test_names_with_commas_stand_in_quotes():
    assert init._read_names('sport, "music, new",5" law') == ("sport", "music, new", '5" law')


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("id2label.json", '{"1": "sport", "2": "law"}', "no names in order; found: "),
        ("names.json", '["sport", "", "law"]', "no names in order; found: "),
        ("names.json", "sport\nlaw", "no names in order; found: sport, law; allowed: "),
        ("names.txt", "[\nsport\nlaw\n]", "no names in order; found: [, sport; allowed: "),
        ("names.csv", "label\nsport\nlaw", "no list of names; found: label, sport; allowed: a name a line"),
        ("names.txt", "Class\nsport\nlaw", "no list of names; found: Class, sport; allowed: a name a line"),
        ("names.csv", "id,label\n0,sport\n1,law", "no list of names; found: id,label, 0,sport; allowed: "),
        ("names.yaml", "- sport\n- law", "no list of names; found: - sport, - law; allowed: "),
    ],
)
def test_a_file_with_more_than_names_is_refused(tmp_path, file, content, message):
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError) as error:
        init._read_names(str(tmp_path / file))
    assert f"{file}, key names: {message}" in error.value.line()
