"""tools/leaderboard*.py: differences, ranks, correlations and tables of cells with known figures."""

import importlib
import json
import sys

import pytest

MAIN = {"labels": "micro-F1", "classes": "accuracy", "unseen": "1-NN accuracy"}
TOOLS = ("leaderboard_figures", "leaderboard", "leaderboard_page")


@pytest.fixture(scope="module")
def tools(root):
    """The modules by name; a tool imports its neighbours, as when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        found = {name: importlib.import_module(name) for name in TOOLS}
    for name in TOOLS:
        del sys.modules[name]
    return found


@pytest.fixture
def tool(tools):
    return tools["leaderboard"]


def write(folder, table, row, column, value, alone=None, seeds=2, **how):
    values = {MAIN[table]: value, MAIN[table] + " without neighbours": value if alone is None else alone}
    values |= {"macro-F1": value / 2, "tail macro-F1": value / 4}
    figures = [{"name": name, "values": [mean + 0.05 * n for n in range(seeds)]}
               for name, mean in values.items()]  # fmt: skip
    file = folder / table / row / f"{column}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"row": row, "column": column, "figures": figures, **how}))


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
    assert "D(simdis, any) on CodiEsp chapters +4.00 (p 0.500)" in text
    assert "rank correlation with the spread of K over 3 data sets: +1.00" in text
    assert "labels: larger with neighbours in 3 of 6 cells, mean -0.25, median -0.25" in text
    assert "classes: larger with neighbours in 1 of 1 cells, mean +1.00, median +1.00" in text
    assert "D(supcon and global (MLCL), cross-entropy) on noise +3.00" in text
    assert "D(hicone, supcon, sections) on 5 a section -2.00" in text


def test_the_committed_figures_are_read(tool, root, capsys):
    tool.main(root / "docs" / "leaderboard" / "figures")
    assert "D(simdis, any) on CodiEsp chapters" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nowhere"]])
def test_a_folder_without_cells_is_refused_in_one_line(tools, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["leaderboard.py", *words])
    with pytest.raises(SystemExit) as ended:
        tools["leaderboard_figures"].folder_of_figures("About.")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "nowhere: no cell in it" in said if words else "required: figures" in said


def test_the_page_has_each_cell_beside_the_control(tools, tmp_path):
    for row, value in {"BCE": 50.0, "any": 51.0, "simclr": 49.5}.items():
        search = {"best": 0.52, "fresh": 0.5 + value / 10_000}
        write(tmp_path, "labels", row, "CodiEsp chapters", value, alone=48.0, seeds=10, search=search)
    write(tmp_path, "labels", "TF-IDF SVM", "CodiEsp chapters", 40.0, seeds=10, baseline=True)
    write(tmp_path, "classes", "cross-entropy", "noise", 60.0)
    write(tmp_path, "classes", "supcon", "noise", 63.0)
    write(tmp_path, "classes", "most frequent", "noise", 20.0, baseline=True)
    text = "\n".join(tools["leaderboard_page"].page(tmp_path))
    p = ".006"  # 2 / 2^10 by Holm over three rows
    assert f"|50.23|any +1.00|simclr -0.50|0|TF-IDF SVM **-10.00** ({p})|" in text
    assert "Of 2 cells with another loss than BCE, 1 are better, 1 worse, 0 not decided." in text
    assert "|CodiEsp chapters|**+1.50** (.002); +0.00 (1)|" in text
    assert "|CodiEsp chapters|52.0 to 52.0|50.5 to 50.5|49.7 to 51.2|" in text
    assert f"|any|51.23 ± 0.15|**+1.00** ({p})|48.23 +0.00|25.73 " in text
    two_seeds_decide_nothing = "|noise|60.02|none|none|1|most frequent -40.00 (1)|"
    assert two_seeds_decide_nothing in text


def test_a_data_set_of_a_reader_needs_no_baseline_and_no_second_seed(tools, tmp_path, capsys):
    for row, value in {"BCE": 50.0, "any": 51.0, "simdis": 52.0}.items():
        write(tmp_path, "labels", row, "My texts", value, seeds=1)
    text = "\n".join(tools["leaderboard_page"].page(tmp_path))
    assert "|My texts|50.00|none|none|2|none|" in text
    assert "|simdis|52.00|+2.00 (1)|" in text
    tools["leaderboard"].main(tmp_path)
    assert "D(simdis, any)" not in capsys.readouterr().out  # the prediction is of other data sets


def test_the_committed_page_is_that_of_the_committed_figures(tools, root):
    board = root / "docs" / "leaderboard"
    page = "\n".join(tools["leaderboard_page"].page(board / "figures")).rstrip() + "\n"
    assert (board / "data-sets.md").read_text() == page, "python tools/leaderboard_page.py"
