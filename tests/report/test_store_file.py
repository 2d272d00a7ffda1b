"""Tests that the runs of an SQLite store, read without MLflow, are those that MLflow returns."""

import shutil
import subprocess
import sys

import pytest
from report.made_up_runs import Store

from mlcl.errors import UserError
from mlcl.results.runs import Runs
from mlcl.results.stores import ClientRuns, FileRuns
from mlcl.tracking import Tracker


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Returns a store with odd names and figures and two deleted runs, one of a deleted experiment."""
    store = Store(Tracker(tmp_path_factory.mktemp("home")))
    store.sweep("Ab", {"trial 1": {1: 0.5, 2: float("nan")}, "as written": {1: 0.4, 2: float("inf")}})
    store.table("it's", {("a", "b_c"): [{"metrics": {"test/accuracy": 0.5}}, None]})
    store.add("plain", name="ab%", tags={"mlcl.name": "ab%", "mlcl.id": "x'y\"z"})
    store.client.delete_run(store.add("plain", name="gone", tags={"mlcl.name": "Ab"}))
    store.add("dropped", tags={"mlcl.name": "Ab"})
    store.client.delete_experiment(store.tracker.experiment("dropped"))
    return store


def told(runs):
    return [
        (
            [run.info.run_id, run.info.run_name, run.info.experiment_id, run.info.start_time],
            {name: str(value) for name, value in run.data.metrics.items()},
            run.data.params,
            run.data.tags,
        )
        for run in runs
    ]


def test_all_runs_are_those_that_mlflow_gives(store):
    file, mlflow = FileRuns(store.tracker.home / "mlflow.db"), ClientRuns(store.client)
    expected = told(mlflow.list_latest())
    assert told(file.list_latest()) == expected
    assert len(expected) == 10
    for (run_id, *_), *_ in expected:
        assert told([file.get(run_id)]) == told([mlflow.get(run_id)])
    assert file.get("none") is mlflow.get("none") is None


@pytest.mark.parametrize(
    ("tag", "value", "how", "count"),
    [("mlcl.name", "Ab", "=", 1), ("mlcl.name", "ab", "=", 0), ("mlcl.name", "Ab%", "LIKE", 1),
     ("mlcl.name", "a%", "LIKE", 1), ("mlcl.name", "it's", "=", 1), ("mlcl.id", "x'y\"z", "=", 1),
     ("mlcl.log", "it's-a-b_c-%", "LIKE", 1)],
)  # fmt: skip
def test_runs_with_a_tag_are_those_that_mlflow_gives(store, tag, value, how, count):
    file, mlflow = FileRuns(store.tracker.home / "mlflow.db"), ClientRuns(store.client)
    expected = told(mlflow.find_tagged(tag, value, how))
    assert told(file.find_tagged(tag, value, how)) == expected
    assert len(expected) == count


COMPARE = """
import sys
from typer.testing import CliRunner
from mlcl.cli.main import app
words = ["compare", *sys.argv[1:]]
print(CliRunner().invoke(app, words).output)
print([name for name in ("mlflow", "torch", "sklearn", "sqlalchemy", "pandas") if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("words", "goal"), [(["one"], "accuracy"), (["other", "--metric", "accuracy"], "macro_f1")]
)
def test_a_comparison_imports_nothing_slow(store, words, goal):
    settings = {"trial 1": {1: 0.5, 2: 0.6}, "as written": {1: 0.4, 2: 0.3}}
    run = store.client.get_run(store.sweep(words[0], settings, score=f"val/{goal}"))
    id = run.data.tags["mlcl.id"]
    folder = store.tracker.home / "sweeps" / id
    folder.mkdir(parents=True)
    store.client.download_artifacts(run.info.run_id, "sweep.json", str(folder))
    process = subprocess.run(
        [sys.executable, "-c", COMPARE, *words, "--home", str(store.tracker.home)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Cannot tell whether" in process.stdout
    assert process.stdout.splitlines()[-1] == "[]", process.stdout + process.stderr


def test_a_store_in_a_home_that_cannot_be_written_is_read(store, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / ".tracking.lock").mkdir()  # root ignores permissions
    shutil.copy(store.tracker.home / "mlflow.db", tmp_path)
    with pytest.raises(UserError, match="key --home: cannot be written"):
        Tracker(tmp_path)
    runs = Runs.open_quickly(tmp_path).find_tagged("mlcl.name", "ab%")
    assert [run.data.tags["mlcl.id"] for run in runs] == ["x'y\"z"]
