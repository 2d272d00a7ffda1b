"""Tests of tools/results_json.py, which writes the figures of docs/results.md as JSON."""

import importlib
import json

import pytest


@pytest.fixture
def tool(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    return importlib.import_module("results_json")


def test_a_cell_has_its_figures_with_deviations_and_what_papers_print(tool):
    assert tool.figures_of("52.08 / 51.90, -0.18 (4.59)") == [
        {"value": 52.08},
        {"value": 51.9},
        {"value": -0.18, "paper": 4.59},
    ]
    assert tool.figures_of("77.02 ± 0.56 (71.30)") == [{"value": 77.02, "deviation": 0.56, "paper": 71.3}]
    assert tool.figures_of("not run") == []


def test_a_record_names_section_commands_row_and_column(tool):
    page = "# Page\n\n## One\n\n```\nrun a \\\n    b\n```\n\n| | CE |\n|---|---:|\n| set | 1.5 |\n"
    assert list(tool.records(page)) == [
        {"section": "One", "commands": ["run a b"], "row": "set", "column": "CE", "figures": [{"value": 1.5}]}
    ]


def test_the_file_in_docs_has_the_figures_of_the_page(tool, root):
    page = (root / "docs/results.md").read_text()
    assert json.loads((root / "docs/results.json").read_text()) == list(tool.records(page))
