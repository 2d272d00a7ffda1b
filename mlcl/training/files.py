"""What a run leaves in its folder: figures, embeddings, and the encoder with all that it needs.

Shapes: N rows, D embedding, P probabilities of a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from safetensors.torch import save_file
from torch import Tensor

from mlcl.config import dump_job
from mlcl.evaluation import ProbeResult
from mlcl.training.checkpoint import remove_left
from mlcl.training.evaluator import Evaluation
from mlcl.training.job_data import JobData
from mlcl.training.objective import ContrastiveModel
from mlcl.training.weights import trained_weights

RESULT = "result.json"
EMBEDDINGS = "embeddings.parquet"
MODEL = "model"
WEIGHTS, PROBE = "weights.safetensors", "probe.safetensors"
JOB, DATASET, TOKENIZER = "job.yaml", "dataset.json", "tokenizer.json"


def write_results(folder: Path, job_data: JobData, model: ContrastiveModel, assessment: Evaluation) -> None:
    """`embeddings.parquet`, `model/` and, last, `result.json`: with it the run is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    _atomic(folder / EMBEDDINGS, lambda path: _write_embeddings(path, job_data, assessment))
    write_model(folder / MODEL, job_data, model, assessment.probe)
    text = json.dumps(assessment.metrics, indent=2, sort_keys=True)
    _atomic(folder / RESULT, lambda path: path.write_text(text + "\n"))


def write_model(
    folder: Path, job_data: JobData, model: ContrastiveModel, probe: ProbeResult | None = None
) -> None:
    """Trained weights and probe (safetensors), tokenizer, resolved job, data fingerprint, in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in trained_weights(model).items()}
    _atomic(folder / WEIGHTS, lambda path: save_file(tensors, path))
    if probe is not None:
        layer = {"weight": probe.weight.contiguous(), "bias": probe.bias.contiguous()}
        _atomic(folder / PROBE, lambda path: save_file(layer, path))
    job = yaml.safe_dump(dump_job(job_data.job), sort_keys=False)
    _atomic(folder / JOB, lambda path: path.write_text(job))
    info = json.dumps({"name": job_data.dataset.info.name, "fingerprint": job_data.fingerprint})
    _atomic(folder / DATASET, lambda path: path.write_text(info + "\n"))
    if job_data.tokenizer is not None:
        text = job_data.tokenizer.to_str()
        _atomic(folder / TOKENIZER, lambda path: path.write_text(text))


def _write_embeddings(path: Path, job_data: JobData, assessment: Evaluation) -> None:
    tables = []
    for split, embedding_ND in assessment.embeddings.items():
        rows = job_data.train if split == "train" else job_data.dataset.split(split)
        tables.append(
            pa.table(
                {
                    "id": pa.array(rows.ids, pa.string()),
                    "split": pa.array([split] * len(rows), pa.string()),
                    "embedding": _fixed(embedding_ND),
                    "probabilities": _lists(assessment.probabilities.get(split), len(rows)),
                }
            )
        )
    pq.write_table(pa.concat_tables(tables), path, compression="zstd")


def _fixed(values_ND: Tensor) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(values_ND.numpy().ravel()), values_ND.shape[1])


def _lists(values: Tensor | None, rows: int) -> pa.ListArray:
    """Probabilities (flattened over aspects) as lists; null where the split has none."""
    if values is None:
        return pa.nulls(rows, pa.list_(pa.float32()))
    flat_NP = values.reshape(rows, -1).float()
    offsets = np.arange(rows + 1, dtype=np.int32) * flat_NP.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat_NP.numpy().ravel()))


def _atomic(path: Path, write: Callable[[Path], object]) -> None:
    remove_left(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
