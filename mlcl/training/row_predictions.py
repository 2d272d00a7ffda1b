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
from mlcl.data.row_groups import row_groups
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


def write_test_rows(
    folder: Path,
    job_data: JobData,
    probabilities: Mapping[str, Tensor],
    decisions: Mapping[str, Decision],
) -> None:
    """Writes `BLOCKS` and `PREDICTIONS`, from the probabilities and decisions by prefix of their metrics."""
    split = job_data.dataset.split("test")
    targets, facts = job_data.targets(split), job_data.facts_of(split)
    block_N = blocks_of_groups(row_groups(split))
    values: dict[str, list[float | None]] = {}
    for prefix, p in probabilities.items():
        only, aspects = _names(job_data, p.shape[1]), job_data.space.aspects
        found = values_without_blocks(
            job_data.task, p, targets, block_N, decisions[prefix], aspects, only, facts
        )
        values |= {f"{prefix}test/{name}": list(map(_rounded, each)) for name, each in found.items()}
    _write_predictions(folder / PREDICTIONS, split, probabilities, block_N)
    replace_text(folder / BLOCKS, json.dumps(values, sort_keys=True) + "\n")


def _names(job_data: JobData, labels: int) -> list[str]:
    """Returns the job's own metric and `MAIN`, where the task has them."""
    groups = job_data.job.evaluation.metrics
    there = metric_names(job_data.task, job_data.space.aspects, labels, groups)
    return [name for name in dict.fromkeys((job_data.scoring.metric, *MAIN)) if name in there]


def blocks_of(folder: Path) -> dict[str, tuple[float, ...]]:
    """Returns the metrics without each block of test rows, by name; empty for a run that read no test."""
    file = folder / BLOCKS
    if not file.is_file():
        return {}
    values: dict[str, list[float | None]] = json.loads(file.read_text())
    return {
        name: tuple(math.nan if value is None else value for value in each) for name, each in values.items()
    }


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
