"""The files of a finished run: figures, embeddings, and the encoder with all that it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml
from safetensors.torch import save_file

from mlcl.config import dump_job
from mlcl.evaluation import ProbeResult
from mlcl.files import new_file, remove_partial, replace_text
from mlcl.training.checkpoint import trained_weights
from mlcl.training.embeddings_file import EMBEDDINGS as EMBEDDINGS
from mlcl.training.embeddings_file import write_embeddings
from mlcl.training.evaluation_result import Evaluation
from mlcl.training.job_data import JobData
from mlcl.training.objective import CLASSIFIER, ContrastiveModel

RESULT = "result.json"
MODEL = "model"
DECISIONS = "decisions.json"
"""In the folder of the model: by way of predicting, which labels are predicted."""
WEIGHTS, PROBE = "weights.safetensors", "probe.safetensors"
JOB, DATASET, TOKENIZER = "job.yaml", "dataset.json", "tokenizer.json"


def write_results(folder: Path, job_data: JobData, model: ContrastiveModel, result: Evaluation) -> None:
    """`embeddings.parquet`, `model/` and, last, `result.json`: with it the run is complete.

    Every rank must call this; all but rank 0 write their part of the embeddings alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_embeddings(folder, job_data, result)
    if not result.train.context.is_main:
        return
    write_model(folder / MODEL, job_data, model, result.probe)
    first = CLASSIFIER if model.objective.classifier is not None else "probe"
    decisions = {prefix.strip("/") or first: each.to_json() for prefix, each in result.decisions.items()}
    replace_text(folder / MODEL / DECISIONS, json.dumps(decisions, indent=2) + "\n")
    _write_result(folder, result)


def write_baseline(folder: Path, job_data: JobData, result: Evaluation) -> None:
    """The same of a baseline, which has probabilities, but neither embeddings nor a model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_embeddings(folder, job_data, result)
    _write_result(folder, result)


def result_files(folder: Path) -> list[Path]:
    """What a finished run has in its folder."""
    return [path for name in (RESULT, EMBEDDINGS, MODEL) if (path := folder / name).exists()]


def remove_unfinished(folder: Path) -> None:
    """Removes the half-written files that killed processes left of a run."""
    for place in (folder, folder / MODEL):
        remove_partial(place)


def keep_figures_alone(folder: Path) -> None:
    """Removes the embeddings and the model of a finished run; its figures stay."""
    for name in (EMBEDDINGS, MODEL):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write_result(folder: Path, result: Evaluation) -> None:
    replace_text(folder / RESULT, json.dumps(result.metrics, indent=2, sort_keys=True) + "\n")


def write_model(
    folder: Path, job_data: JobData, model: ContrastiveModel, probe: ProbeResult | None = None
) -> None:
    """Trained weights and probe (safetensors), tokenizer, resolved job, data fingerprint, in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in trained_weights(model).items()}
    with new_file(folder / WEIGHTS) as path:
        save_file(tensors, path)
    if probe is not None:
        layer = {"weight": probe.weight.contiguous(), "bias": probe.bias.contiguous()}
        with new_file(folder / PROBE) as path:
            save_file(layer, path)
    replace_text(folder / JOB, yaml.safe_dump(dump_job(job_data.job), sort_keys=False))
    info = json.dumps({"name": job_data.dataset.info.name, "fingerprint": job_data.fingerprint})
    replace_text(folder / DATASET, info + "\n")
    if job_data.tokenizer is not None:
        replace_text(folder / TOKENIZER, job_data.tokenizer.to_str())
