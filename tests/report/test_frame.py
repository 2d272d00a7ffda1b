"""Tests that the frame of `mlcl.results.load` has the contents of the sweep's ledger."""

import math

import pandas as pd
import pytest
from builders import tiny_job
from sweeps import World

import mlcl.results
from mlcl.report.sweep_data import SweepData
from mlcl.report.sweep_tables import budget_table, run_figure
from mlcl.results.documents import read_sweep
from mlcl.results.frame import COLUMNS, LabelledTraining, frame_of
from mlcl.results.runs import Runs
from mlcl.results.training_result import TrainingResult
from mlcl.service.engine.ledger import Ledger


@pytest.fixture(scope="module")
def frame(store, searched):
    return mlcl.results.load("searched <b>", home=searched[0], uri=store.tracker.uri)


@pytest.fixture(scope="module")
def ledger(searched):
    return Ledger(searched[1].folder)


def test_one_row_a_trial_and_seed(frame, ledger):
    entry_states = {(entry.label, str(entry.state)) for entry in ledger.entries.values()}
    names = frame["setting"] + frame["seed"].map(lambda seed: f", seed {seed}").where(
        frame["kind"] == "confirmation", ""
    )
    assert set(zip(names, frame["state"], strict=True)) == entry_states
    assert len(frame) == len(ledger.entries)
    assert tuple(frame.columns[: len(COLUMNS)]) == COLUMNS


def test_figures_and_costs_are_the_ledgers(frame, ledger):
    search_rows = frame[frame["kind"] == "search"].set_index("number")
    for entry in ledger.trials():
        row = search_rows.loc[entry.number]
        assert row["score"] == entry.score or (math.isnan(row["score"]) and entry.score is None)
        assert row["seconds"] == pytest.approx(entry.cost.seconds, abs=1e-3)
        assert row["cpu_seconds"] == pytest.approx(entry.cost.cpu_seconds, abs=1e-3)
        for key, value in entry.settings.items():
            assert row[key] == pytest.approx(value, rel=1e-9)


def test_what_types_columns_have(frame):
    assert frame["objective.heads.detail.temperature"].dtype == "float64"
    assert frame["seed"].dtype == "Int64"
    assert isinstance(frame["started"].dtype, pd.DatetimeTZDtype)
    assert not any(name.startswith("log10.") for name in frame.columns)
    assert list(frame["kind"].drop_duplicates()) == ["search", "baseline search", "race", "confirmation"]


def test_words_that_python_would_read_as_numbers_stay_words():
    values = ["2020_01", "Infinity", "1", -3, 1e-5, 0.5, math.inf, True]
    params = {f"key{place}": value for place, value in enumerate(values)}
    frame = frame_of([LabelledTraining("run", "it", TrainingResult("a", "a", "COMPLETE", seed=1), params)])
    assert [frame.loc[0, key] for key in params] == values


def test_a_training_that_mlflow_lacks_has_no_run_and_its_figures_link_to_none():
    trainings = [TrainingResult("a", "a", "COMPLETE", score=0.5, run_id=run_id) for run_id in ("run", None)]
    frame = frame_of([LabelledTraining("search", "a", training, {}) for training in trainings])
    assert frame["run_id"].tolist() == ["run", None]
    cells = [run_figure(row, "score") for _, row in frame.iterrows()]
    assert [(cell.text, cell.run_id, cell.runs) for cell in cells] == [
        ("0.5000", "run", ("run",)), ("0.5000", "", ())
    ]  # fmt: skip


def test_any_name_of_a_sweep(store, searched, frame):
    for word in (searched[1].id, searched[1].run_id):
        other_frame = mlcl.results.load(word, home=searched[0], uri=store.tracker.uri)
        pd.testing.assert_frame_equal(other_frame, frame)


def test_cells_of_a_table(store, searched):
    metrics = {"test/accuracy": 0.5, "knn/test/accuracy": 0.6}
    failed_run = {"metrics": {"test/accuracy": 0.0}, "state": "FAILED", "params": {"train.lr": 2}}
    cells = {("Hotel", "CE"): [{"metrics": metrics, "params": {"train.lr": 1}}, failed_run]}
    ids = store.table("t9", cells)
    cell_frame = mlcl.results.load("t9", home=searched[0], uri=store.tracker.uri)
    columns = ["kind", "setting", "seed", "state", "train.lr", "run_id", *metrics]
    rows = cell_frame[columns].astype(object).where(cell_frame[columns].notna(), None)
    assert rows.values.tolist() == [
        ["cell", "Hotel, CE", 0, "COMPLETE", 1, ids["Hotel", "CE", 0], 0.5, 0.6],
        ["cell", "Hotel, CE", 1, "FAILED", 2, ids["Hotel", "CE", 1], 0.0, None],
    ]


def test_a_sweep_as_it_was_asked(store, searched):
    runs = Runs(store.tracker)
    data = SweepData.of(read_sweep(runs, runs.require_group("searched <b>")), runs.history)
    report = searched[1]
    heads = [f"objective.heads.{name}" for name in ("detail", "topic")]
    assert data.varied == tuple(f"{head}.{key}" for key in ("temperature", "weight") for head in heads)
    assert (data.best["setting"], data.best["score"]) == (report.best.label, report.best.score)
    assert [goal.metric for goal in data.result.goals] == [report.score]
    assert data.confirmed_names[data.best["setting"]] in set(data.confirmation["setting"])
    history = data.history(data.best["run_id"], "val/accuracy")
    assert [step for step, _ in history] == [10, 20, 30, 40]


def test_trials_that_do_not_fit_a_later_space_are_left_out(store, tiny, tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, store.tracker.uri)
    job = tiny_job(tiny, "train.epochs=2", "experiment=narrowed")
    space = "space:\n  objective.heads.*.temperature: {log_float: [LOW, 1.0]}\nsearch: {scheduler: none}\n"
    world.run(world.plan(job, space.replace("LOW", "0.01"), trials=5, name="narrowed"))
    report = world.run(world.plan(job, space.replace("LOW", "0.1"), trials=6, name="narrowed"))
    ledger = Ledger(report.folder)
    counted_entries = ledger.counted_trials()
    runs = Runs(store.tracker)
    data = SweepData.of(read_sweep(runs, runs.require_group("narrowed")), runs.history)
    assert list(data.search["setting"]) == [entry.label for entry in counted_entries]
    assert 0 < len(data.dropped) == len(ledger.trials()) - len(counted_entries)
    parts = {row[0].text: int(row[1].text) for row in budget_table(data).rows}
    assert parts["search, of an earlier space"] == len(data.dropped)
    assert parts["all"] == len(ledger.trials())
    assert data.result.space == space.replace("LOW", "0.1")
