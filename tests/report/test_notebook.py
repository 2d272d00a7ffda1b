"""examples/notebook.ipynb runs from top to bottom on the results of a sweep."""

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def test_every_cell_runs(store, searched, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    cells = [
        "".join(c["source"]) for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"
    ]
    assert cells[0].startswith("SWEEP, HOME = ")
    names = {"SWEEP": "searched <b>", "HOME": searched[0]}
    for cell in cells[1:]:
        exec(compile(cell, str(NOTEBOOK), "exec"), names)
    assert set(names["fresh"]["seed"]) == {1, 2, 3}
    assert names["by_seed"].notna().all(axis=None)
    assert len(names["keys"]) > 1
