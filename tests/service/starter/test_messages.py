"""Errors on a user's files name options that the command has, in words that fit every command."""

import ast
import re
from pathlib import Path

import pytest
import typer
from service.starter.test_layouts import REFUSED, refused

import mlcl
from mlcl.cli.main import app
from mlcl.data.sources.image_folder import Options
from mlcl.data.sources.table_files import CsvOptions
from mlcl.data.tables.options import MultiLabelColumn, SingleColumn

ROOT = Path(mlcl.__file__).parent
SHARED = [
    *sorted((ROOT / "data" / "tables").glob("*.py")),
    *sorted((ROOT / "data").glob("*.py")),
    ROOT / "data" / "sources" / "table_files.py",
    ROOT / "data" / "sources" / "image_folder.py",
    ROOT / "service" / "starter" / "table_options.py",
    ROOT / "training" / "export" / "labelling.py",
    ROOT / "training" / "input_reader.py",
]
"""Files whose errors reach a user through `init`, `prepare`, `check` and `predict` alike."""
OPTIONS = {
    *CsvOptions.model_fields,
    *Options.model_fields,
    *MultiLabelColumn.model_fields,
    *SingleColumn.model_fields,
}
"""What a source calls its options, and those of a label space."""


def options_of(command):
    """The options and arguments of a command, without dashes."""
    found = typer.main.get_command(app).commands[command]
    return {name.lstrip("-").replace("-", "_") for each in found.params for name in each.opts}


def raised(file):
    """The texts of the errors that a file raises."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("UserError", "error"):
            yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))


@pytest.mark.parametrize("file", SHARED, ids=lambda file: file.name)
def test_no_error_has_the_notation_of_one_command(file):
    texts = [text for text in raised(file) if isinstance(text, str)]
    named = "|".join(OPTIONS)
    wrong = [t for t in texts if re.search(rf"--[a-z]|\b({named})=", t)]
    assert wrong == [], file


@pytest.mark.parametrize("message", REFUSED)
def test_the_options_that_a_refusal_names_are_those_of_init(message, tmp_path):
    allowed = str(refused(message, tmp_path).allowed)
    named = {word for word in re.findall(r"[a-z_]+", allowed) if word in OPTIONS - {"image", "path", "text"}}
    assert named <= options_of("init"), allowed


def test_predict_can_read_what_init_reads():
    assert {"text", "id", "encoding", "delimiter", "header"} <= options_of("predict")
    assert {"kind", "separator", "delimiter", "encoding", "allow_untrained"} <= options_of("init")
