"""Writes an exported model's encoder and layers as an ONNX graph, which is compared with the network.

Shapes: B rows, T tokens, F columns of a frozen input, D embedding, O the encoder's output.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mlcl.config import JobConfig
from mlcl.data.images import normalise
from mlcl.errors import UserError
from mlcl.extras import missing_modules
from mlcl.markup import markdown_table
from mlcl.models import ENCODERS
from mlcl.models.encoders.features import SPARSE
from mlcl.training.export.network import Network
from mlcl.training.job_data import JobData

FILE = "model.onnx"
TOKENS = ("input_ids", "attention_mask")
"""The inputs of an encoder that reads tokens."""
TOLERANCE = 1e-4
"""The largest difference between graph and network, absolute and relative to the value."""
TRIED = 8
"""The number of validation rows that are compared."""
MAX_BYTES = 2**31 - 2**20
"""Larger weights are written to a file beside the graph, since an ONNX file holds less than 2 GiB."""
_SECTION = """## ONNX

`model.onnx` is the network alone. Its outputs equal the network's to {tolerance:g}, compared on validation
rows. {before} The probabilities of `classifier` and `probe` are the {function} of their logits; the votes of
the neighbours are outside.

{table}

The first axis is that of the rows, of any number.{padding}"""
BEFORE = {
    "tokens": "Texts become ids by `tokenizer.json`, truncated to the job's {length} tokens.",
    "pixels": "Images have the size in `model.json`; the graph scales and normalises their colours.",
    "features": "The frozen inputs (`features/`), TF-IDF among them, are computed outside.",
}


class Graph(nn.Module):
    """The encoder and its layers as one function: inputs by name to the embeddings and each layer's logits.

    Images are uint8 and normalised in the graph; a sparse frozen input is passed as a dense one (B, F).
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.outputs = ["embeddings", *(f"{name}_logits" for name in network.layers)]

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Returns the embeddings (B, D), and the logits of each layer, (B, C) or (B, A, C)."""
        if "pixels" in inputs:
            inputs = {"pixels": normalise(inputs["pixels"])}
        network, output_BO = self.network, self.network.encoder(**inputs)
        logits = (layer(network.features(output_BO, name)) for name, layer in network.layers.items())
        return output_BO[:, : network.dim], *logits


def check_onnx(job: JobConfig) -> None:
    """Raises UserError if the job's encoder or precision has no exact graph, or a package is missing."""
    reason = ENCODERS[job.encoder.name].no_onnx
    if job.train.precision != "float32":
        reason = f"train.precision: {job.train.precision} computes in half precision, and a graph would not"
    elif getattr(job.encoder, "weights", None) == "bf16":
        reason = "encoder.weights: bf16 computes in half precision, and a graph would not"
    if reason:
        raise UserError(f"no exact ONNX graph: {reason}", key="--also", found=f"onnx of {job.encoder.name}")
    problem = missing_modules("onnx")
    if problem:
        raise UserError(problem, key="--also", found="onnx")


def write_onnx(network: Network, job_data: JobData, folder: Path) -> str:
    """Writes `model.onnx` to the folder of an exported model, and returns a section of its README.

    Raises UserError if the encoder cannot be written as a graph, or if the graph's outputs differ from the
    network's by more than `TOLERANCE`.
    """
    graph, name = Graph(network).eval(), job_data.job.encoder.name
    inputs = _example_inputs(job_data)
    tokens = {key: inputs[key] for key in inputs if key in TOKENS}
    padded = inputs | {
        key: functional.pad(value, (0, _max_length(job_data) - value.shape[1]))
        for key, value in tokens.items()
    }
    size = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    try:
        with _silence_exporter(), torch.no_grad():
            torch.onnx.export(
                graph,
                (),
                folder / FILE,
                # With one row, the exporter would take the number of rows for a constant.
                kwargs={"inputs": {key: torch.cat([value, value]) for key, value in padded.items()}},
                input_names=list(inputs),
                output_names=graph.outputs,
                dynamic_shapes={
                    "inputs": {key: {0: "rows"} | ({1: "tokens"} if key in tokens else {}) for key in inputs}
                },
                external_data=size > MAX_BYTES,
                dynamo=True,
                verbose=False,
            )
        for batch in (inputs, padded, {key: value[:1] for key, value in inputs.items()}):
            _check_outputs(graph, folder / FILE, batch)
    except (UserError, OSError):
        raise
    except Exception as error:  # tracing, converting and running raise nothing narrower
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError("this encoder has no ONNX graph", key="--also", found=f"{name}: {reason}") from error
    return _format_section(graph, inputs, job_data)


def _example_inputs(job_data: JobData) -> dict[str, Tensor]:
    """Returns some validation rows as the graph's inputs."""
    split = job_data.dataset.split("validation")
    inputs = dict(job_data.encode_unlabelled(split).inputs.batch(torch.arange(min(TRIED, len(split)))))
    columns = {} if job_data.features is None else job_data.features.columns
    for name in set(SPARSE) & columns.keys():
        column_BT, value_BT = inputs.pop(f"{name}_columns"), inputs.pop(f"{name}_values")
        dense_BF = torch.zeros(len(value_BT), columns[name])
        inputs[name] = dense_BF.scatter_add_(1, column_BT.long(), value_BT)
    return inputs


@torch.no_grad()
def _check_outputs(graph: Graph, file: Path, inputs: Mapping[str, Tensor]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    results = session.run(graph.outputs, {name: value.numpy() for name, value in inputs.items()})
    for name, expected, actual in zip(graph.outputs, graph(dict(inputs)), results, strict=True):
        if not np.allclose(actual, expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE):
            difference = f"{name} by {float(np.abs(actual - expected.numpy()).max()):.2g}"
            raise UserError("the ONNX graph differs from the network", key="--also", found=difference)


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silences warnings and logs of the exporter, which do not help users."""
    disabled_level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled_level)


def _format_section(graph: Graph, inputs: Mapping[str, Tensor], job_data: JobData) -> str:
    rows = []
    for name, value in inputs.items():
        shape = "tokens" if name in TOKENS else " x ".join(map(str, value.shape[1:]))
        rows.append((f"`{name}`", "in", str(value.dtype).removeprefix("torch."), shape))
    rows += [(f"`{name}`", "out", "float32", "") for name in graph.outputs]
    kind = "tokens" if "input_ids" in inputs else "pixels" if "pixels" in inputs else "features"
    is_text = kind == "tokens"
    return _SECTION.format(
        tolerance=TOLERANCE,
        before=BEFORE[kind].format(length=_max_length(job_data)) if is_text else BEFORE[kind],
        function="sigmoid" if job_data.task == "multi_label" else "softmax",
        table=markdown_table(("name", "", "type", "shape of a row"), rows, left=(0, 1, 2)),
        padding=" Padding on the right, up to this length, changes no output." if is_text else "",
    )


def _max_length(job_data: JobData) -> int:
    """Returns the largest number of tokens that the job reads of a text."""
    section = job_data.job.encoder
    return ENCODERS[section.name].size(section)
