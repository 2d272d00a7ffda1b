"""tools/leaderboard.py: differences, ranks and correlations of cells with known figures."""

import importlib.util
import json
import sys

import pytest

MAIN = {"labels": "micro-F1", "classes": "accuracy", "unseen": "1-NN accuracy"}


@pytest.fixture(scope="module")
def tool(root):
    spec = importlib.util.spec_from_file_location("leaderboard_figures", root / "tools" / "leaderboard.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "leaderboard_figures", module)  # its dataclass looks the module up
        spec.loader.exec_module(module)
    return module


def write(folder, table, row, column, value, alone=None):
    values = {MAIN[table]: value, MAIN[table] + " without neighbours": value if alone is None else alone}
    figures = [{"name": name, "values": [mean, mean + 0.1]} for name, mean in values.items()]
    file = folder / table / row / f"{column}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"row": row, "column": column, "figures": figures}))


def test_known_figures(tool, tmp_path, capsys):
    for column, gain in (("Reuters-21578", 1.0), ("GoEmotions 5,000", 2.0), ("CodiEsp chapters", 4.0)):
        write(tmp_path, "labels", "BCE", column, 50.0)
        write(tmp_path, "labels", "any", column, 51.0, alone=50.5)
        write(tmp_path, "labels", "simdis", column, 51.0 + gain, alone=52.0 + gain)
    write(tmp_path, "classes", "cross-entropy", "noise", 60.0)
    write(tmp_path, "classes", "supcon and global (MLCL)", "noise", 63.0, alone=62.0)
    write(tmp_path, "unseen", "supcon, sections", "5 a section", 70.0)
    write(tmp_path, "unseen", "hicone", "5 a section", 68.0)
    tool.main(tmp_path)
    text = capsys.readouterr().out
    assert (
        "**CodiEsp chapters**, micro-F1, BCE 50.05:\n\n- simdis +5.00 (p 1.000)\n- any +1.00 (p 1.000)"
        in text
    )
    assert "D(simdis, any) on CodiEsp chapters +4.00 (p 0.500)" in text
    assert "rank correlation with the spread of K over 3 data sets: +1.00" in text
    assert "labels: larger with neighbours in 3 of 6 cells, mean -0.25" in text
    assert "classes: larger with neighbours in 1 of 1 cells, mean +1.00" in text
    assert "D(supcon and global (MLCL), cross-entropy) on noise +3.00" in text
    assert "D(hicone, supcon, sections) on 5 a section -2.00" in text


def test_the_committed_figures_are_read(tool, root, capsys):
    tool.main(root / "docs" / "leaderboard" / "figures")
    assert "D(simdis, any) on CodiEsp chapters" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nowhere"]])
def test_a_folder_without_cells_is_refused_in_one_line(tool, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["leaderboard.py", *words])
    with pytest.raises(SystemExit) as ended:
        tool.folder_of_figures()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "nowhere: no cell in it" in said if words else "required: figures" in said
