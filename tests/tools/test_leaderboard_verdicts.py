"""Tests of the lines that tools/leaderboard_verdicts.py writes about published cells."""

import importlib
import json

import pandas as pd
import pytest


@pytest.fixture
def tool(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    return importlib.import_module("leaderboard_verdicts")


def verdict(metric, difference, interval, answer):
    return {
        "metric": metric, "difference": difference, "interval": interval, "answer": answer,
        "reference": {"label": "CE"},
    }  # fmt: skip


def write(folder, row, mean, *verdicts, baseline=False, column="Set"):
    figures = [
        {"name": name, "metric": metric, "mean": mean}
        for name, metric in (
            ("accuracy", "knn/test/accuracy"),
            ("accuracy without neighbours", "test/accuracy"),
        )
    ]
    cell = {
        "table": "board", "row": row, "column": column, "id": f"{row}/{column}", "figures": figures,
        "verdicts": verdicts, "baseline": baseline, "test_rows": 1_500,
    }  # fmt: skip
    (folder / row).mkdir(parents=True, exist_ok=True)
    (folder / row / f"{column}.json").write_text(json.dumps(cell))


@pytest.fixture
def folder(tmp_path):
    metrics = ("knn/test/accuracy", "test/accuracy")
    write(tmp_path, "CE", 70.0)
    write(tmp_path, "supcon", 72.5, *(verdict(metric, 0.025, (0.01, 0.04), "helps") for metric in metrics))
    write(
        tmp_path,
        "knn",
        69.0,
        verdict(metrics[0], -0.01, (-0.02, 0.0), "cannot tell"),
        verdict(metrics[1], 0.0, None, "cannot tell"),
    )
    write(
        tmp_path,
        "SVM",
        60.0,
        *(verdict(metric, -0.1, (-0.11, -0.09), "hurts") for metric in metrics),
        baseline=True,
    )
    return tmp_path


def test_each_method_has_its_figure_and_verdict_the_best_first(tool, folder):
    lines = list(tool.page(folder))
    rows = lines[lines.index("## Set") + 4 :]
    assert (
        rows[0] == "|supcon|72.50|**+2.50 (+1.00 to +4.00)**|better|72.50|**+2.50 (+1.00 to +4.00)**|better|"
    )
    assert rows[1] == "|CE|70.00||control|70.00||control|"
    assert rows[2] == "|knn|69.00|-1.00 (-2.00 to +0.00)|cannot tell|69.00|+0.00|cannot tell|"
    assert rows[3].startswith("|SVM|60.00|**-10.00 (-11.00 to -9.00)**|worse|")


def test_a_data_set_has_a_line_of_what_is_decided_of_trained_methods(tool, folder):
    lines = list(tool.page(folder))
    (line,) = [row for row in lines if row.startswith("|Set|")]
    assert line == "|Set|1,500|70.00|supcon +2.50|none|0|1|1.25|"


def test_the_share_of_the_lead_that_fresh_seeds_keep_is_a_ratio_of_sums(tool):
    searches = [{"median": 0.5, "best": 0.7, "fresh": 0.6}, {"median": 0.4, "best": 0.5, "fresh": 0.45}]
    text = tool.kept("labels", [{"search": search} for search in [*searches, None]])
    assert text == "labels 50 % (sums over 2 cells; the median cell 50 %)"
    assert tool.kept("labels", [{"search": None}]) == ""


def test_picks_that_are_the_control_with_the_least_weight_of_a_head_are_counted(tool):
    def cell(row, *picks):
        searches = [{"pick": f"{row}, trial {pick}"} for pick in picks]
        return {"row": row, "id": f"{row}/set", "search": {"searches": searches}}

    weighted_settings = json.dumps({"train.lr": 0.1, "objective.heads.*.weight": 0.03})
    trials = pd.DataFrame(
        [
            ("CE", "search", 1, '{"train.lr": 0.1}'),
            ("knn", "search", 1, weighted_settings),
            ("msc", "search", 1, weighted_settings),
        ],
        columns=["row", "stage", "number", "settings"],
    )
    cells = [cell("CE", 1, 1), cell("knn", 1, 11, 0), cell("msc", 3, 1, 1)]
    assert tool.least_weights(cells, trials) == (3, 6)


def test_a_folder_without_cells_and_an_empty_cell_are_refused(tool, tmp_path):
    with pytest.raises(SystemExit, match="has no cells"):
        tool.read(tmp_path / "typo")
    (tmp_path / "supcon").mkdir()
    (tmp_path / "supcon/Set.json").touch()
    with pytest.raises(SystemExit, match=r"Set\.json: is no JSON document"):
        tool.read(tmp_path)
