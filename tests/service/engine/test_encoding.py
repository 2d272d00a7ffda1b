"""Tests of encoding before trainings: its messages, and the effects of a stop, an error and a full cache."""

import os
import shutil
from contextlib import contextmanager

import pytest
from builders import job_tree, text_dataset
from sweeps import World

from mlcl.config import dump_job, load_job
from mlcl.data.cache_entries import cache_entries
from mlcl.service.engine import encoding
from mlcl.service.engine.encoding import (
    QUIET,
    SPLITS,
    Pace,
    Work,
    encode_ahead,
    encode_beside,
    forecast,
    forecast_text,
)
from mlcl.service.run_job import run_job
from mlcl.service.search.plan_checks import plan_sweep
from mlcl.tracking import State
from mlcl.training.features import transformer

SPACE = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none, metric: val/accuracy}"


@pytest.fixture
def bert(models):
    return {"model": str(models["bert"]), "max_length": 6}


@pytest.fixture
def job(tmp_path, bert, monkeypatch):
    monkeypatch.setattr(transformer, "ROWS_AT_ONCE", 4)
    tree = job_tree(text_dataset(tmp_path / "data"), epochs=1)
    return load_job(tree | {"encoder": {"name": "features", "inputs": ["transformer"], "transformer": bert}})


@pytest.fixture
def work(job, tmp_path):
    return Work([job, job], tmp_path / "home", "cpu")


@pytest.fixture
def said(monkeypatch):
    """Returns a list for the messages of `encode_ahead`, which then shows its progress after each batch."""
    monkeypatch.setattr(encoding, "QUIET", 0.0)
    monkeypatch.setattr(encoding, "EVERY", 0.0)
    return []


def ahead(work, said, *, test=True, stop=lambda: False):
    return encode_ahead(
        work, test=test, show=lambda *progress: said.append(progress), note=said.append, stop=stop
    )


def encoded_rows(home):
    return sum("transformer of" in entry.about for entry in cache_entries(home))


def test_nothing_is_said_for_two_seconds_and_then_every_two():
    now, reports = [10.0], []
    pace = Pace(lambda *progress: reports.append(progress), lambda: now[0])
    for seconds, rows_done in (
        (0.5, 0),
        (1.5, 100),
        (1.9, 140),
        (2.5, 200),
        (3.0, 250),
        (4.6, 410),
        (5.0, 450),
    ):
        now[0] = 10.0 + seconds
        pace(rows_done, 1000)
    assert QUIET == 2.0
    assert [report[:2] for report in reports] == [(200, 1000), (410, 1000)]
    assert reports[0][2] == pytest.approx(8.0)
    assert reports[0][3] == "encoding: 200 of 1,000 rows, 100 a second, about 0m08s left"
    assert pace.is_shown
    assert pace.elapsed_text == "0m05s"


def test_rows_are_there_when_the_trainings_begin_and_then_nothing_is_said(work, said):
    with ahead(work, said):
        assert work.find_missing(SPLITS) == []
    assert said[0][0] < said[0][1]
    assert said[-1].startswith("frozen inputs: ")
    said.clear()
    with ahead(work, said):
        pass
    assert said == []


def test_without_test_figures_test_rows_are_not_encoded(work, said):
    with ahead(work, said, test=False):
        assert [rows.split.name for rows in work.find_missing(SPLITS)] == ["test"]


def test_test_rows_that_take_longer_are_encoded_beside_the_trainings(work, said, monkeypatch):
    calls = []

    @contextmanager
    def beside(beside_work, note):
        calls.append([rows.split.name for rows in beside_work.find_missing(SPLITS)])
        yield
        calls.append("left")

    monkeypatch.setattr(encoding, "SHORT", 0.0)
    monkeypatch.setattr(encoding, "_encode_in_task", beside)
    with ahead(work, said):
        assert calls == [["test"]]
    assert calls == [["test"], "left"]
    assert (
        said[-1] == f"{len(work.find_missing(['test'])[0].split)} test rows are encoded beside the trainings"
    )


def test_the_process_beside_encodes_test_rows_at_the_lowest_priority(work, monkeypatch, tmp_path):
    priorities = []
    monkeypatch.setattr(os, "nice", priorities.append)
    encode_beside([dump_job(job) for job in work.jobs], str(work.home), str(tmp_path), "cpu")
    assert [rows.split.name for rows in work.find_missing(SPLITS)] == ["train", "validation"]
    assert priorities == [19]


def test_a_stop_lets_the_block_run_and_leaves_whole_splits(work, said):
    stops = iter([False] * 16 + [True] * 100)
    with ahead(work, said, stop=lambda: next(stops)):
        missing_splits = [rows.split.name for rows in work.find_missing(SPLITS)]
    assert missing_splits in (["train", "validation", "test"], ["validation", "test"])
    assert list((work.home / "cache" / "features").glob(".*.partial")) == []


def test_after_an_error_trainings_encode_for_themselves(work, said, monkeypatch):
    monkeypatch.setattr(encoding, "encode", lambda *_: 1 / 0)
    with ahead(work, said):
        assert len(work.find_missing(SPLITS)) == 3
    assert said == ["frozen inputs are left to the trainings: ZeroDivisionError: division by zero"]


def test_a_cluster_encodes_where_it_trains(job, tmp_path, monkeypatch):
    assert Work.of([job], tmp_path, 0).device == Work.of([job], tmp_path, None).device == "cpu"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert Work.of([job], tmp_path, 0) is None
    assert forecast([job], tmp_path, None) is None
    assert forecast_text(None) == "by the first training that reads a frozen input"


def test_a_sweep_encodes_before_its_first_training(job, tmp_path, monkeypatch):
    world = World(tmp_path / "home", monkeypatch)
    plan = world.plan(job, SPACE, trials=2, seeds=1)
    encoding_plan = plan_sweep(plan, world.home)["sweep"]["encoding"]
    assert encoding_plan["rows"] == 96
    assert encoding_plan["seconds"] > 0
    assert forecast_text(encoding_plan | {"seconds": 61}) == "96 rows, about 1m01s"
    row_counts = []
    world.formula.before = lambda _job, _epoch: row_counts.append(encoded_rows(world.home))
    with monkeypatch.context() as patch:
        patch.setattr(Pace, "__call__", lambda *_: world.request.set())
        assert world.run(plan).state is State.STOPPED
    assert (row_counts, encoded_rows(world.home)) == ([], 0)
    assert world.run(plan).state is State.COMPLETE
    assert set(row_counts) == {3}
    shutil.rmtree(world.home / "cache")
    assert world.run(plan).state is State.COMPLETE
    assert encoded_rows(world.home) == 0  # no training is left
    assert plan_sweep(plan, world.home)["sweep"]["encoding"]["rows"] == 96


def test_a_run_encodes_first_and_tells_its_listener(job, tmp_path, said):
    events = []
    report = run_job(job, home=tmp_path / "home", listener=events.append)
    assert report.state is State.COMPLETE
    kinds = [event.kind for event in events]
    assert kinds.index("start") == len([kind for kind in kinds if kind == "encoding"]) > 0
    assert (events[0].steps, events[0].note[:9]) == (96, "encoding:")
