"""The test rows that a run keeps: predictions, and metrics without each block of rows."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from builders import tiny_job

from mlcl.evaluation import evaluate
from mlcl.training.context import ONE_PROCESS
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.row_predictions import blocks_of
from mlcl.training.run_files import keep_metrics_alone, result_files


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
    assert (len(block_N), set(block_N)) == (24, set(range(count)))  # twins are in one block
    targets = job_data.targets(job_data.dataset.split("test"))
    blocks = blocks_of(folder)
    for column, prefix in (("classifier", ""), ("knn", "knn/"), ("knn_best", "knn_best/")):
        p = torch.tensor(table[column].to_pylist()).float()
        for name in ("accuracy", "macro_f1"):
            expected = []
            for block in range(count):
                rest = torch.from_numpy(np.flatnonzero(block_N != block))
                expected.append(evaluate("single", p[rest], targets[rest], only=[name])[name])
            assert blocks[f"{prefix}test/{name}"] == pytest.approx(expected, rel=1e-5)


def test_they_stay_when_the_metrics_alone_are_kept(finished):
    _, folder = finished
    keep_metrics_alone(folder)
    assert {path.name for path in result_files(folder)} == {
        "result.json",
        "test_blocks.json",
        "test_predictions.parquet",
    }
    assert json.loads((folder / "test_blocks.json").read_text()).keys() == blocks_of(folder).keys()


def test_a_run_that_reads_no_test_keeps_none(tiny, tmp_path):
    job_data = JobData.of(tiny_job(tiny, epochs=1), tmp_path)
    run_experiment(job_data, folder=tmp_path / "run", context=ONE_PROCESS, listener=[].append, test=False)
    assert blocks_of(tmp_path / "run") == {}
    assert not (tmp_path / "run" / "test_predictions.parquet").exists()
