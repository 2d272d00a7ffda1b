"""Writes and reads the files of a finished run: metrics, embeddings, and the model with job and tokenizer.

The embeddings are one Parquet file; several ranks write a folder with one part from each.

Shapes: N rows, D embedding, P probabilities of a row.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch import Tensor

from mlcl.config import job_yaml
from mlcl.data import Split
from mlcl.evaluation import ProbeResult
from mlcl.files import new_file, remove_partial, replace_text
from mlcl.training.checkpoint import trained_weights, unshare_tensors
from mlcl.training.context import Context
from mlcl.training.evaluator import Evaluation
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import write_neighbours
from mlcl.training.objective import CLASSIFIER, ContrastiveModel
from mlcl.training.row_predictions import BLOCKS, PREDICTIONS, as_column, write_test_rows

RESULT = "result.json"
MODEL = "model"
DECISIONS = "decisions.json"
"""The file in the model's folder that says which labels each predictor predicts."""
WEIGHTS, PROBE = "weights.safetensors", "probe.safetensors"
JOB, DATASET, TOKENIZER = "job.yaml", "dataset.json", "tokenizer.json"
EMBEDDINGS = "embeddings.parquet"
MODELS = (EMBEDDINGS, MODEL)
"""The embeddings and the model of a run, without which a run has only its metrics and test predictions."""
PARTS = f".{EMBEDDINGS}.ranks.partial"
"""The folder that is renamed to `EMBEDDINGS` when every rank has written its part."""
Stored = Literal["float32", "float16", "figures"]
"""The type of a run's stored embeddings and probabilities; `figures` stores neither these nor the model.

For `float16` a run with an embedding beyond `LARGEST_HALF` has the type float32."""
LARGEST_HALF = 16.0
"""The largest absolute value of an embedding stored as float16, which then rounds by less than 0.004."""
ROW_GROUP = 65_536
"""The number of rows that the Parquet writer copies and encodes at once."""


def write_results(
    folder: Path,
    job_data: JobData,
    result: Evaluation,
    model: ContrastiveModel | None = None,
    stored: Stored = "float32",
) -> None:
    """Writes `embeddings.parquet`, `model/` and, last, `result.json`, which marks the run as complete.

    If `stored` is `figures`, embeddings and model are not written, and those of an earlier call are removed.
    A run that read the test split also writes `test_blocks.json` and `test_predictions.parquet`. A run that
    did not read it, but searched the neighbours' settings, writes `neighbours.json`.

    Every rank must call this; the ranks above 0 write nothing but their part of the embeddings. Without
    `model`, as for a baseline, `model/` has no weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if stored != "figures":
        write_embeddings(folder, job_data, result, stored)
    if not result.train.context.is_main:
        return
    if stored == "figures":
        keep_figures_alone(folder)
    else:
        (folder / MODEL).mkdir(parents=True, exist_ok=True)
        if model is not None:
            _write_weights(folder / MODEL, job_data, model, result.probe)
        two_phases = model is not None and model.objective.classifier is None
        first_predictor = "probe" if two_phases and result.probe is not None else CLASSIFIER
        _write_metadata(folder / MODEL, job_data, result, first_predictor)
    if result.tested:
        write_test_rows(folder, job_data, result.tested, result.decisions)
    elif result.grid is not None:
        write_neighbours(folder, result.grid)
    replace_text(folder / RESULT, json.dumps(result.metrics, indent=2, sort_keys=True) + "\n")


def result_files(folder: Path, *, models: bool = True) -> list[Path]:
    """Returns a finished run's result files and folders that exist, those of `MODELS` only if `models`."""
    names = (RESULT, BLOCKS, PREDICTIONS, *(MODELS if models else ()))
    return [path for name in names if (path := folder / name).exists()]


def remove_unfinished(folder: Path) -> None:
    """Removes the partial files that killed processes left in a run's folder and in its model's folder."""
    for path in (folder, folder / MODEL):
        remove_partial(path)


def keep_figures_alone(folder: Path) -> None:
    """Removes the embeddings and the model of a run, and keeps its metrics and test predictions."""
    for path in (folder / name for name in MODELS):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write_weights(
    folder: Path, job_data: JobData, model: ContrastiveModel, probe: ProbeResult | None
) -> None:
    with new_file(folder / WEIGHTS) as path:
        save_file(unshare_tensors(trained_weights(model)), path)
    if probe is not None:
        layer = {"weight": probe.weight.contiguous(), "bias": probe.bias.contiguous()}
        with new_file(folder / PROBE) as path:
            save_file(layer, path)
    if job_data.tokenizer is not None:
        replace_text(folder / TOKENIZER, job_data.tokenizer.to_str())


def _write_metadata(folder: Path, job_data: JobData, result: Evaluation, first_predictor: str) -> None:
    """Writes job, name and fingerprint of the data, and decisions; `first_predictor` names the first."""
    replace_text(folder / JOB, job_yaml(job_data.job))
    info = json.dumps({"name": job_data.dataset.info.name, "fingerprint": job_data.fingerprint})
    replace_text(folder / DATASET, info + "\n")
    decisions = {
        prefix.strip("/") or first_predictor: decision.to_json()
        for prefix, decision in result.decisions.items()
    }
    replace_text(folder / DECISIONS, json.dumps(decisions, indent=2) + "\n")


def write_embeddings(folder: Path, job_data: JobData, result: Evaluation, stored: Stored = "float32") -> None:
    """Writes `EMBEDDINGS` into the folder, completely or not at all. Every rank must call this.

    The columns are `id`, `split`, `embedding` and `probabilities`, which is null for training rows; numbers
    have the type `stored`, see `Stored`. Each rank writes its own training rows, and the last rank also the
    rows of validation and test. The parts, read in the order of their names, have the content of the one file
    that a single process writes.
    """
    train, context = result.train, result.train.context
    values = (train.values, *result.embeddings.values())
    kind = torch.float32
    if stored == "float16" and not context.any(any(bool((x.abs() > LARGEST_HALF).any()) for x in values)):
        kind = torch.float16
    tables = [_build_table(job_data.train, train.numbers, train.values, None, kind)]
    if context.rank == context.world_size - 1:
        for name, embedding_ND in result.embeddings.items():
            split = job_data.dataset.split(name)
            probabilities = result.probabilities.get(name)
            tables.append(_build_table(split, range(len(split)), embedding_ND, probabilities, kind))
    if context.world_size == 1:
        with new_file(folder / EMBEDDINGS) as path:
            _write_tables(path, tables)
    else:
        write_part(folder, tables, context)


def read_embeddings(path: Path, **options: Any) -> pa.Table:
    """Reads a run's embeddings, a file or a folder of parts, as a table; see `pyarrow.parquet.read_table`."""
    return pq.read_table(path, partitioning=None, **options)


def write_part(folder: Path, tables: list[pa.Table], context: Context) -> None:
    """Writes this rank's part of the embeddings. Raises OSError on every rank if one cannot write."""
    parts, target = folder / PARTS, folder / EMBEDDINGS
    with _wait_for_ranks(folder, context):
        if context.is_main:
            remove_partial(folder, EMBEDDINGS)
            parts.mkdir()
    with _wait_for_ranks(folder, context):
        _write_tables(parts / f"part-{context.rank:05d}.parquet", tables)
    with _wait_for_ranks(folder, context):
        if context.is_main:
            if target.is_dir():
                shutil.rmtree(target)
            target.unlink(missing_ok=True)
            parts.rename(target)


@contextmanager
def _wait_for_ranks(folder: Path, context: Context) -> Iterator[None]:
    """Waits for all ranks at the end of the block. Raises OSError on all if one raises it in the block."""
    error: OSError | None = None
    try:
        yield
    except OSError as exception:  # the other ranks must not wait for this one for ever
        error = exception
    if context.any(error is not None):
        raise error or OSError(f"another rank could not write its embeddings into {folder}")


def _write_tables(path: Path, tables: list[pa.Table]) -> None:
    table, options = pa.concat_tables(tables), {"compression": "zstd", "row_group_size": ROW_GROUP}
    # Vectors have no values in common, so that a dictionary only takes time; their exponents compress.
    vectors = [f"{name}.list.element" for name in table.column_names if pa.types.is_nested(table[name].type)]
    pq.write_table(table, path, use_dictionary=["id", "split"], use_byte_stream_split=vectors, **options)


def _build_table(
    split: Split, rows: range, embedding_ND: Tensor, probabilities: Tensor | None, kind: torch.dtype
) -> pa.Table:
    """Returns a table of the rows of a split with the numbers `rows`; vectors have the type `kind`."""
    columns = {
        "id": split.id_column(rows),
        "split": pa.repeat(pa.scalar(split.name, pa.string()), len(rows)),
        "embedding": as_column(embedding_ND.to(kind).numpy()),
        "probabilities": _to_list_array(probabilities, len(rows), kind),
    }
    return pa.table(columns)


def matrix(column: pa.ChunkedArray) -> Tensor:
    """Converts a column of lists of one length to a matrix. Raises ValueError for different lengths."""
    if len(pc.unique(pc.list_value_length(column))) > 1:
        raise ValueError("rows of several lengths")
    return torch.from_numpy(pc.list_flatten(column).to_numpy().reshape(len(column), -1).copy())


def _to_list_array(values: Tensor | None, rows: int, kind: torch.dtype) -> pa.ListArray:
    """Converts each row's probabilities to one flat list; returns nulls if `values` is None."""
    if values is None:
        return pa.nulls(rows, pa.list_(pa.float16() if kind == torch.float16 else pa.float32()))
    flat_NP = values.reshape(rows, -1).to(kind)
    offsets = np.arange(rows + 1, dtype=np.int32) * flat_NP.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat_NP.numpy().ravel()))
