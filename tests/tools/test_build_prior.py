"""Tests of the settings that tools/build_prior.py chooses from trials whose best setting is known."""

import importlib
import math

import numpy as np
import pandas as pd
import pytest
import yaml


@pytest.fixture
def tool(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "tools")
    return importlib.import_module("build_prior")


def made(column, best, *, rows=("a", "b"), count=60):
    """Returns trials of a data set, whose metric falls with the distance of the learning rate from `best`."""
    rng = np.random.default_rng(len(column))
    rates = np.exp(rng.uniform(math.log(1e-4), math.log(1e-1), count))
    return pd.DataFrame(
        {
            "stage": "search",
            "state": "COMPLETE",
            "column": column,
            "row": [rows[k % len(rows)] for k in range(count)],
            "score": 0.5,
            "metrics": [{"val/accuracy": -abs(math.log(rate / best))} for rate in rates],
            "settings": [
                {"train.lr": float(rate), "objective.heads.x.weight": 0.1, "evaluation.knn.k": 3}
                for rate in rates
            ],
        }
    )


def test_a_setting_has_one_value_for_all_heads(tool):
    settings = {"train.lr": 0.1, "evaluation.knn.k": 5} | {
        f"objective.heads.{head}.temperature": value for head, value in (("x", 0.1), ("y", 0.4))
    }
    setting = tool.setting_of(settings)
    assert setting == {"train.lr": 0.1, "objective.heads.*.temperature": pytest.approx(0.2)}


def test_points_cover_the_data_sets(tool):
    """Tests that one point lies between both data sets, and that three points include the best of each."""
    distances = [np.array([[0.0, 4.0, 2.1]]), np.array([[4.0, 0.0, 1.0]])]
    assert tool.portfolio(distances, 1) == [2]
    assert sorted(tool.portfolio(distances, 3)) == [0, 1, 2]


def test_the_file_has_settings_near_the_best_of_each_set(tool, monkeypatch, tmp_path, capsys):
    frames = {"one": made("one", 1e-3), "another": made("another", 3e-2), "left": made("left", 1e-3)}
    frames["one"].loc[0, "row"] = tool.APART[0]
    monkeypatch.setattr(tool, "read_trials", lambda file: frames[file.name])
    path = tmp_path / "prior.yaml"
    options = ["--metric", "val/accuracy", "--points", "2", "--without", "left"]
    monkeypatch.setattr("sys.argv", ["x", "--out", str(path), *options, *frames])
    tool.main()
    tree = yaml.safe_load(path.read_text())
    rates = sorted(point["train.lr"] for point in tree["points"])
    assert all(abs(math.log(rate / best)) < 1 for rate, best in zip(rates, (1e-3, 3e-2), strict=True))
    assert all(point["objective.heads.*.weight"] == 0.1 for point in tree["points"])
    assert "one (59)" not in tree["about"]
    assert tree["about"].startswith("Trials of another, one (119)")
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line.startswith("left: 0.")


def test_a_metric_that_a_trial_lacks_is_refused(tool, monkeypatch, tmp_path):
    monkeypatch.setattr(tool, "read_trials", lambda _: made("one", 1e-3, count=5))
    options = ["--metric", "val/micro_f1", "--out", str(tmp_path / "prior.yaml"), "one.parquet"]
    monkeypatch.setattr("sys.argv", ["x", *options])
    with pytest.raises(SystemExit, match=r"one\.parquet: 5 of 5 trials have no val/micro_f1"):
        tool.main()
    assert not (tmp_path / "prior.yaml").exists()


def test_names_are_told_apart_by_the_forest(tool):
    settings = [{"pos_weight": name} for name in ("none", "sqrt", "none")]
    column = tool.encoded([*settings, {}], ["pos_weight"], np.zeros(4))[:, 0]
    assert column[0] == column[2] != column[1]
    assert np.isnan(column[3])
