"""Tests of the test rows that a run stores: predictions, and metrics without each block of rows."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from builders import tiny_job
from stored_runs import TASKS

from mlcl.evaluation import Decision, LabelFacts, evaluate, metric_names
from mlcl.evaluation.jackknife import blocks_of_groups
from mlcl.labels import LabelRows
from mlcl.testing.metrics import ASPECTS, CLASSES, FACTS, scene
from mlcl.training.context import ONE_PROCESS
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.row_predictions import PredictedRows, blocks_of
from mlcl.training.run_files import keep_figures_alone, result_files


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    job_data = JobData.of(tiny_job(tiny, epochs=2), home)
    run_experiment(job_data, folder=home / "run", context=ONE_PROCESS, listener=[].append)
    return job_data, home / "run"


def test_each_predictor_has_its_metrics_without_each_block(finished):
    job_data, folder = finished
    table = pq.read_table(folder / "test_predictions.parquet")
    block_N = np.array(table["block"].to_pylist())
    count = block_N.max() + 1
    assert (len(block_N), set(block_N)) == (24, set(range(count)))  # equal rows are in the same block
    targets = job_data.targets(job_data.dataset.split("test"))
    blocks = blocks_of(folder)
    for column, prefix in (("classifier", ""), ("knn", "knn/"), ("knn_best", "knn_best/")):
        p = torch.tensor(table[column].to_pylist()).float()
        for name in ("accuracy", "macro_f1"):
            expected = []
            for block in range(count):
                other_rows = torch.from_numpy(np.flatnonzero(block_N != block))
                expected.append(evaluate("single", p[other_rows], targets[other_rows], only=[name])[name])
            assert blocks[f"{prefix}test/{name}"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_recorded_blocks_are_computed_again_from_the_predictions(tiny, tmp_path, task):
    job, folder = tiny_job(tiny, *TASKS[task], "evaluation.threshold=per_label"), tmp_path / "run"
    run_experiment(JobData.of(job, tmp_path), folder=folder, context=ONE_PROCESS, listener=[].append)
    rows, recorded = PredictedRows.read(folder / "test_predictions.parquet"), blocks_of(folder)
    assert {name.rpartition("test/")[0] for name in recorded} == set(rows.probabilities) >= {"", "knn_best/"}
    for name, values in recorded.items():
        prefix, _, metric = name.rpartition("test/")
        # With so few rows, `map` changes if float16 makes two probabilities equal.
        expected = pytest.approx(values, abs=0.02 if metric == "map" else 1e-3)
        assert rows.without_blocks(prefix, [metric]) == {name: expected}


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_every_metric_is_read_from_the_predictions_alone(tmp_path, task, unknown):
    p, targets = scene(task, 0, tied=False)
    block_N, row_path = blocks_of_groups(np.arange(len(p)), blocks=6), None
    facts = FACTS if task == "multi_label" else LabelFacts(FACTS.band[:CLASSES], FACTS.path[:CLASSES])
    if task == "single":
        row_path = facts.path[targets.numpy()]
        row_path[::3, 0] = -1
    if isinstance(targets, LabelRows) and unknown:
        targets = replace(targets, unknown=LabelRows.from_dense((targets.dense() == 0) & (p > 0.8)))
    width = p.shape[1]
    decision = Decision("per_label", tuple((torch.arange(width) / width).tolist()))
    probabilities = {"": p.half().float(), "knn/": (p**2).half().float()}
    decisions = {"": decision, "knn/": Decision("top_k", k=3, at_least_one=True)}
    aspects, facts = ASPECTS if task == "aspects" else (), replace(facts, row_path=row_path)
    rows = PredictedRows(task, aspects, targets, facts, block_N, probabilities, decisions)
    rows.write(tmp_path / "file", pa.array([str(row) for row in range(len(p))]))
    stored_rows = PredictedRows.read(tmp_path / "file")
    names = metric_names(task, rows.aspects, width, groups=None)
    names = [name for name in names if not name.endswith(ASPECTS[-1])]  # this aspect has no target
    for prefix in rows.probabilities:
        actual, expected = (
            predicted_rows.without_blocks(prefix, names) for predicted_rows in (stored_rows, rows)
        )
        assert actual.keys() == expected.keys() == {f"{prefix}test/{name}" for name in names}
        assert all(actual[name] == pytest.approx(expected[name], abs=0, nan_ok=True) for name in actual)


def test_blocks_that_are_asked_for_later_are_computed_once(finished, tmp_path):
    _, folder = finished
    for name in ("test_blocks.json", "test_predictions.parquet"):
        shutil.copy(folder / name, tmp_path)
    known_names, unknown_names = (
        ["knn/test/tail_accuracy", "test/macro_f1_predicted"],
        ["test/no_metric", "x/test/map"],
    )
    values = blocks_of(tmp_path, [*known_names, *unknown_names, "val/accuracy"])
    assert values.keys() - blocks_of(folder).keys() == {*known_names}
    (tmp_path / "test_predictions.parquet").unlink()
    assert blocks_of(tmp_path).keys() == values.keys()


def test_predictions_without_targets_are_those_of_an_earlier_version(finished, tmp_path):
    _, folder = finished
    shutil.copy(folder / "test_blocks.json", tmp_path)
    table = pq.read_table(folder / "test_predictions.parquet").drop_columns(["target", "path"])
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "test_predictions.parquet")
    assert blocks_of(tmp_path, ["test/macro_f1_predicted"]) == blocks_of(folder)


def test_they_stay_when_the_metrics_alone_are_kept(finished):
    _, folder = finished
    keep_figures_alone(folder)
    names = {path.name for path in result_files(folder)}
    assert names == {"result.json", "test_blocks.json", "test_predictions.parquet"}
    assert json.loads((folder / "test_blocks.json").read_text()).keys() == blocks_of(folder).keys()


def test_a_run_that_reads_no_test_keeps_none(tiny, tmp_path):
    job_data = JobData.of(tiny_job(tiny, epochs=1), tmp_path)
    run_experiment(job_data, folder=tmp_path / "run", context=ONE_PROCESS, listener=[].append, test=False)
    assert blocks_of(tmp_path / "run") == {}
    assert not (tmp_path / "run" / "test_predictions.parquet").exists()
