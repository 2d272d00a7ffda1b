"""The test rows of a run: their predictions, and its metrics without each block of them.

Shapes: N test rows, B blocks, P probabilities of a row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from mlcl.data import Split
from mlcl.evaluation import Decision, metric_names
from mlcl.evaluation.jackknife import blocks_of_groups, values_without_blocks
from mlcl.evaluation.tasks import Array
from mlcl.files import new_file, replace_text
from mlcl.training.job_data import JobData

BLOCKS = "test_blocks.json"
"""The metrics without each block of test rows, by the name that the run logs."""
PREDICTIONS = "test_predictions.parquet"
MAIN = ("micro_f1", "macro_f1", "accuracy", "map")
"""The metrics besides the job's own, of tasks that have them."""
DIGITS = 6


def row_groups(split: Split) -> Array:
    """The group of each row (N,) int64, of rows that are not independent; here each row is its own."""
    return np.arange(len(split))


def write_test_rows(
    folder: Path,
    job_data: JobData,
    probabilities: Mapping[str, Tensor],
    decisions: Mapping[str, Decision],
) -> None:
    """Writes `BLOCKS` and `PREDICTIONS`, from the probabilities and decisions by prefix of their metrics."""
    split = job_data.dataset.split("test")
    block_N = blocks_of_groups(row_groups(split))
    values = {
        f"{prefix}test/{name}": list(map(_rounded, value_B))
        for prefix, p in probabilities.items()
        for name, value_B in _without_blocks(job_data, split, p, decisions[prefix], block_N).items()
    }
    _write_predictions(folder / PREDICTIONS, split, probabilities, block_N)
    replace_text(folder / BLOCKS, json.dumps(values, sort_keys=True) + "\n")


def _without_blocks(
    job_data: JobData, split: Split, probabilities: Tensor, decision: Decision, block_N: Array
) -> dict[str, Array]:
    task, aspects = job_data.task, job_data.space.aspects
    groups = job_data.job.evaluation.metrics
    there = metric_names(task, aspects, probabilities.shape[1], groups)
    only = [name for name in dict.fromkeys((job_data.scoring.metric, *MAIN)) if name in there]
    facts = job_data.facts_of(split)
    targets = job_data.targets(split)
    return values_without_blocks(task, probabilities, targets, block_N, decision, aspects, only, facts)


def _rounded(value: float) -> float | None:
    """Six significant digits; None for NaN, which JSON lacks."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _write_predictions(file: Path, split: Split, probabilities: Mapping[str, Tensor], block_N: Array) -> None:
    """Writes the columns `id`, `block` and, for each predictor, its probabilities as lists of float16."""
    columns = {"id": split.id_column(range(len(split))), "block": pa.array(block_N.astype(np.int16))}
    for prefix, p in probabilities.items():
        flat_NP = p.reshape(len(p), -1).numpy().astype(np.float16)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(flat_NP.ravel()), flat_NP.shape[1])
        columns[prefix.strip("/") or "classifier"] = lists
    with new_file(file) as path:
        pq.write_table(pa.table(columns), path, compression="zstd")
