"""Tests that the leaderboard takes a user's loss as one more row and plans it like the others."""

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mlcl.config.table.schema import load_table
from mlcl.service.tables.cost import plan_table
from mlcl.service.tables.plan import TablePlan

ROOT = Path(__file__).resolve().parents[3]
NAME = "leaderboard-labels"
OTHERS = ("bce", "asl", "simclr", "any", "mulsupcon", "simdis", "msc", "knn")


@pytest.fixture
def cases(tmp_path):
    """Writes thirty clinical cases, ten per split, each with two of three labels, and returns their file."""
    splits = ("train", "validation", "test")
    rows = [
        {
            "id": f"case {i}",
            "text": f"fever and cough number{i % 5} of patient{i}",
            "split": splits[i % 3],
            "chapter": [f"C{i % 2}", "C2"],
            "category": [f"K{i % 2}", "K2"],
        }
        for i in range(30)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "codiesp.parquet")
    return tmp_path / "codiesp.parquet"


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_loss_from_a_file_is_one_entry(tmp_path, cases):
    for folder in ("jobs", "tables", "tune_spaces"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.DOTALL)
    (tmp_path / "jobs" / "dice.py").write_text(code)
    page = (ROOT / "docs" / "leaderboard" / "README.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    row, column = ({name: entry} for name, entry in yaml.safe_load(text).items())
    shutil.copy(ROOT / "jobs" / "codiesp_features.yaml", tmp_path / "jobs" / "my_texts_features.yaml")
    file = tmp_path / "tables" / f"{NAME}.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["rows"] |= row
    tree["columns"] |= column
    file.write_text(yaml.safe_dump(tree, sort_keys=False))

    plan = TablePlan(
        load_table(file),
        file,
        only=[
            f"{name}/{column_id}"
            for name in ("dice", *OTHERS)
            for column_id in ("codiesp-chapters", "my-texts")
        ],
        data={"parquet": str(cases)},
        overrides={"encoder": {"name": "features", "inputs": ["tfidf"]}},
    )
    trainings = plan_table(plan, tmp_path / "home")["trainings"]
    assert (
        trainings["all"] == trainings["missing"] == 33 * len(trainings["tuned"]) == 33 * 2 * (2 + len(OTHERS))
    )
    controls = {f"bce-two-views/{column}" for column in ("codiesp-chapters", "my-texts")}
    assert controls < trainings["tuned"].keys()  # the other rows follow the control
    costs = {
        name: (counts["trials"], counts["race"], counts["seeds"])
        for name, counts in trainings["tuned"].items()
    }
    assert costs["dice/codiesp-chapters"] == costs["dice/my-texts"] == costs["bce/my-texts"] == (18, 9, 6)
    (dice_cell, bce_cell) = (
        next(cell for cell in plan.cells if cell.row == name) for name in ("dice", "BCE")
    )
    assert dice_cell.jobs[0].objective.heads["contrast"].loss == "dice"
    assert dice_cell.figures == bce_cell.figures
