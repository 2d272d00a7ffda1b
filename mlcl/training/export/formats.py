"""The formats in which an exported model is written besides its own, for programs that do not have mlcl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.training.export.network import Network
from mlcl.training.export.onnx_graph import check_onnx, write_onnx
from mlcl.training.export.sentence_transformer import check_sentence_transformers, write_sentence_transformers
from mlcl.training.job_data import JobData
from mlcl.training.objective import ContrastiveModel

ONNX, SENTENCES = "onnx", "sentence-transformers"
ALLOWED = (ONNX, SENTENCES, f"{SENTENCES}:HEAD")


def check_formats(formats: Sequence[str], job: JobConfig) -> None:
    """Raises UserError for an unknown format, and for one in which the job's model would not be exact.

    The formats are `onnx`, `sentence-transformers`, and `sentence-transformers:HEAD` with the projection of a
    head.
    """
    if formats and job.baseline is not None:
        raise UserError("a baseline has no network to write", key="--also", found=list(formats))
    for each in formats:
        name, _, head = each.partition(":")
        if each == ONNX:
            check_onnx(job)
        elif name == SENTENCES and not each.endswith(":"):
            check_sentence_transformers(job, head)
        else:
            raise UserError("no such format", key="--also", found=each, allowed=ALLOWED)
    names = [each.partition(":")[0] for each in formats]
    if len(set(names)) < len(names):
        raise UserError("names a format twice", key="--also", found=list(formats))


def write_formats(
    formats: Sequence[str], model: ContrastiveModel, network: Network, job_data: JobData, folder: Path
) -> list[str]:
    """Writes checked formats into the folder of an exported model, and returns sections of its README.

    `network` has the encoder of the trained `model`, with the layers of its predictors. Raises UserError if
    the encoder has no exact ONNX graph.
    """
    return [
        write_onnx(network, job_data, folder)
        if each == ONNX
        else write_sentence_transformers(model, job_data, folder, each.partition(":")[2])
        for each in formats
    ]
