"""Tests of the differences within seeds and between columns that tools/encoder_contrasts.py computes."""

import importlib
import json

import pytest


@pytest.fixture
def tool(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    return importlib.import_module("encoder_contrasts")


@pytest.fixture
def folder(tool, tmp_path):
    rows = {row for pair in tool.CONTRASTS.values() for row in pair} | {*tool.HEADS, tool.CONTROL}
    for column, gain in (("equal 500", 1.0), ("nested 500", 3.0), ("nested 2,000", 3.0)):
        for row in rows:
            row_gain = gain if row == "+ simdis" else 0.0
            values = [90.0 + row_gain, 91.0 + row_gain + (row == "+ simdis"), 95.0 + row_gain]
            figures = [{"name": name, "values": values, "validation": values} for name in tool.FIGURES]
            (tmp_path / row).mkdir(exist_ok=True)
            cell = {"column": column, "row": row, "figures": figures}
            (tmp_path / row / f"{column}.json").write_text(json.dumps(cell))
    return tmp_path


def test_the_intervals_are_over_seeds(tool, folder):
    """Tests differences of 1, 2, 1 and 3, 4, 3 with Student's t (2 degrees: 4.303) and Welch's (4: 2.776)."""
    lines = list(tool.lines(folder))
    assert lines[0] == "| micro-F1 | equal 500 | nested 500 |"
    half_width = 4.302653 / 3
    low, high = (
        f"{4 / 3 - half_width:+.2f} to {4 / 3 + half_width:+.2f}",
        f"{10 / 3 - half_width:+.2f} to {10 / 3 + half_width:+.2f}",
    )
    assert lines[2] == f"| simdis less mulsupcon | +1.33 ({low}) | +3.33 ({high}) |"
    joint_width = 2.776445 * (2 / 9) ** 0.5
    assert (
        lines[3]
        == f"| less that of equal 500 |  | +2.00 ({2 - joint_width:+.2f} to {2 + joint_width:+.2f}) |"
    )
    assert "| micro-F1 | nested 2,000 |" in lines
    assert lines[10].startswith("| the best head by validation, less BCE, two views | simdis +1.33 (")


def test_a_column_is_compared_with_its_twin_of_equally_many_rows(tool):
    columns = ("GoEmotions 1,000", "GoEmotions 1,000, frozen", "AAPD 750", "equal 500", "equal, missing")
    assert [tool._size(column) for column in columns] == ["1,000", "1,000", "750", "500", "missing"]


def test_a_column_that_is_not_complete_is_left_out(tool, folder):
    (folder / "+ msc" / "nested 500.json").unlink()
    assert next(tool.lines(folder)) == "| micro-F1 | equal 500 |"
    for column in ("equal 500", "nested 2,000"):
        (folder / "+ msc" / f"{column}.json").unlink()
    with pytest.raises(SystemExit, match=r"no column has all of \+ msc, "):
        list(tool.lines(folder))


def test_a_column_of_other_figures_is_left_out(tool, folder):
    for file in folder.glob("*/nested 500.json"):
        cell = json.loads(file.read_text())
        file.write_text(json.dumps({**cell, "figures": [{**cell["figures"][0], "name": "5-shot micro-F1"}]}))
    assert next(tool.lines(folder)) == "| micro-F1 | equal 500 |"


def test_a_folder_without_cells_is_refused(tool, tmp_path):
    with pytest.raises(SystemExit, match="has no cells"):
        list(tool.lines(tmp_path))
