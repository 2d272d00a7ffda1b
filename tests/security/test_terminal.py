"""Tests that control codes and markup in names of data, ids and errors are printed as plain characters."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.cli.output import fail, metrics_table, results
from mlcl.errors import UserError, escape_unprintable

EVIL = "[red]a[/bold] \x1b[31m\x1b]0;title\x07 [link=http://x]y"


@pytest.fixture
def evil(tiny, tmp_path):
    """Returns a data set whose names contain terminal control codes and markup."""
    folder = tmp_path / "evil"
    shutil.copytree(tiny, folder)
    file = folder / "dataset.json"
    info = json.loads(file.read_text())
    info |= {"name": EVIL, "licence": EVIL, "source": EVIL}
    spaces = info["label_spaces"]
    for space in ("topic", "detail", "tags"):
        spaces[space]["classes"] = [f"{EVIL}{i}" for i in range(len(spaces[space]["classes"]))]
    file.write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("command", ["describe", "check"])
def test_names_in_data_are_shown_as_they_are(evil, command):
    answer = CliRunner().invoke(app, ["data", command, str(evil)])
    assert answer.exit_code == 0, answer.output
    assert "\x1b" not in answer.output
    assert "\x07" not in answer.output
    assert "[red]a[/bold] \\x1b[31m" in answer.output


def test_names_of_aspects_in_a_table_of_figures(capsys):
    results.print(metrics_table({f"val/accuracy_{EVIL}": 0.5, "test/accuracy_[/red]": 0.5}, "exp"))
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "accuracy_[/red]" in output


def test_json_has_the_name_itself(evil):
    answer = CliRunner().invoke(app, ["data", "describe", str(evil), "--json"])
    assert json.loads(answer.stdout)["name"] == EVIL
    assert "\x1b" not in answer.output


def test_an_error_shows_what_it_found(capsys):
    fail(UserError("wrong", key=EVIL, found=EVIL), as_json=True)
    output = capsys.readouterr()
    assert "\x1b" not in output.err + output.out
    assert "found: [red]a[/bold] \\x1b[31m" in output.err
    assert json.loads(output.out)["error"]["found"] == EVIL


def test_letters_of_any_language_stay():
    assert escape_unprintable("日本語 é ß 🙂") == "日本語 é ß 🙂"
    assert escape_unprintable("a\x00b\u202ec\ud800") == "a\\x00b\\u202ec\\ud800"
