"""The report of a table with tuned cells: the search, the runs of fresh seeds, and runs that are gone."""

from pathlib import Path

import pytest
from reproduced import TUNED, Tables

from mlcl.report.embedding_plots import EmbeddingOptions
from mlcl.report.report import make_report
from mlcl.report.table_plots import comparable_cells
from mlcl.results.runs import Runs
from mlcl.results.stored import read_table
from mlcl.tracking import Tracker


@pytest.fixture
def world(store, tiny, tmp_path, monkeypatch):
    """Makes homes, each with an MLflow store of its own."""
    template = Path(store.tracker.uri.removeprefix("sqlite:///"))
    return lambda name: Tables(tmp_path / name, monkeypatch, tiny, mlflow=template)


def reported(tables, name, *, quick=True):
    """The table as it is read, and its report's Markdown."""
    runs, folder = Runs(Tracker(tables.home, tables.mlflow)), tables.home / f"report of {name}"
    embeddings = EmbeddingOptions(quick=quick)
    make_report(runs, name, tables.home, folder=folder, embeddings=embeddings, log=False)
    return read_table(runs, runs.require_group(name)), (folder / "report.md").read_text()


def test_a_tuned_cell_shows_its_search_and_the_runs_of_its_fresh_seeds(world):
    tables = world("home")
    cell = tables.run(tables.plan(TUNED)).cells[1]
    data, text = reported(tables, "table")
    (warm,) = [each for each in data.cells if each.row == "Warm"]
    assert [its.metrics["test/accuracy"] for its in warm.trainings] == list(warm.figures[0].values)
    assert warm.run_ids(warm.figures[0]) == [its.run_id for its in warm.trainings]
    its, section = cell.search, text.partition("## Searches")[2].partition("\n## ")[0]
    trials = ", ".join(f"{count} {state}" for state, count in its.trials.items())
    scores = f"{its.median:.4f} | {its.best:.4f} | {its.fresh:.4f} |"
    assert f"| Warm, All | val/accuracy (max) | {trials} | {scores} " in section
    ((key, value),) = cell.settings.items()
    assert f"| {key}={value:.4g} |" in section
    assert "Cold" not in section
    tables.run(tables.plan(name="plain"))
    assert "## Searches" not in reported(tables, "plain")[1]


def test_a_table_is_reported_though_mlflow_lacks_its_runs(world):
    tables = world("home")
    its = tables.run(tables.plan(TUNED))
    for cell in its.cells:
        for training in cell.trainings:
            Tracker(tables.home, tables.mlflow).client.delete_run(training.run_id)
    data, text = reported(tables, "table", quick=False)
    assert "no run is complete" in text
    assert [cell.figures for cell in data.cells] == [cell.figures for cell in its.cells]
    assert not any(each.run_id for cell in data.cells for each in cell.trainings)
    assert "## Searches" in text
    # The cells saw the same rows, so they are still tested in pairs.
    (group,) = comparable_cells(data)
    assert list(group.cells) == ["Cold", "Warm"]
    assert "| All | Warm | Cold | 2 |" in text
