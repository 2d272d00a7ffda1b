"""Tests of `mlcl reproduce` with Ray and a store, and of a repetition of the command."""

import json

import yaml

TABLE = {
    "title": "Heads",
    "experiment": "heads",
    "source": "Made for tests",
    "job": "../job.yaml",
    "metrics": {"Acc": "test/accuracy", "kNN": "knn/test/accuracy"},
    "tolerance": 100,
    "rows": {"CE": {"set": {"objective.heads": {}}}, "MLCL": {}},
    "columns": {"All": {}},
    "paper": {"CE": {"All": [90, None]}, "MLCL": {"All": [95, 96]}},
}


def test_a_table_end_to_end(mlcl):
    (mlcl.folder / "tables").mkdir()
    (mlcl.folder / "tables" / "heads.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    answer = mlcl("reproduce", "heads", "--json")
    assert answer.status == 0, answer.err
    report = answer.json
    assert (report["state"], report["outside"], report["undelivered"]) == ("COMPLETE", [], 0)
    check_runs(mlcl, report)
    folder = mlcl.home / "tables" / report["id"]
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "table.json", "table.md", "table.tex"
    }  # fmt: skip

    second_answer = mlcl("reproduce", "heads")
    assert second_answer.status == 0, second_answer.err
    assert "2 of 2 runs are done" in second_answer.err
    assert second_answer.out.startswith((folder / "table.md").read_text())
    assert len(mlcl.runs()) == 3
    assert {run.info.status for run in mlcl.runs()} == {"FINISHED"}


def check_runs(mlcl, report):
    """Checks that the report, the run folders and MLflow agree about every cell."""
    runs = {run.data.tags["mlcl.id"]: run for run in mlcl.runs()}
    table = runs.pop(report["id"])
    assert {run.info.status for run in (table, *runs.values())} == {"FINISHED"}
    artifacts = {item.path for item in mlcl.client.list_artifacts(table.info.run_id)}
    assert artifacts >= {"table.md", "table.tex", "table.json"}
    assert set(runs) == {cell["runs"][0] for cell in report["cells"]}
    for cell in report["cells"]:
        (id,) = cell["runs"]
        result = json.loads((mlcl.home / "runs" / id / "result.json").read_text())
        run = runs[id]
        assert run.data.tags["mlflow.parentRunId"] == table.info.run_id
        assert run.info.run_name == run.data.tags["mlcl.cell"] == f"{cell['row']}, All, seed 0"
        for figure in cell["figures"]:
            assert figure["values"] == [100 * result[figure["metric"]]]
            assert run.data.metrics[figure["metric"]] == result[figure["metric"]]
            name = f"{cell['id']}/{figure['name'].lower()}"
            assert table.data.metrics[name] == figure["mean"] == figure["values"][0]
            assert table.data.metrics.get(f"{name}/printed") == figure["printed"]
